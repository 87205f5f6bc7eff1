"""`python -m services.discovery` runs the controller, `python -m services.discovery agent` the node part.

Read next: app.py, agent/app.py.
"""

from __future__ import annotations

import sys

if sys.argv[1:2] == ["agent"]:
    from services.discovery.agent.app import main
else:
    from services.discovery.app import main

if __name__ == "__main__":
    main()
