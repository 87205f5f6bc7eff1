"""`python -m services.deployer` runs the controller, `python -m services.deployer agent` the node part.

Read next: app.py, agent/app.py.
"""

from __future__ import annotations

import sys

if sys.argv[1:2] == ["agent"]:
    from services.deployer.agent.app import main
else:
    from services.deployer.app import main

if __name__ == "__main__":
    main()
