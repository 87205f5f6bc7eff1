"""`python -m services.modelstore` runs the controller, `... agent` the node part, `... hub-add` imports a directory.

Read next: app.py, agent/app.py.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Dispatch."""
    if sys.argv[1:2] == ["hub-add"]:
        from services.modelstore.drivers.hub_add import main as hub_add

        sys.exit(hub_add(sys.argv[2:]))
    if sys.argv[1:2] == ["agent"]:
        from services.modelstore.agent.app import main as run_agent

        run_agent()
    from services.modelstore.app import main as run

    run()


if __name__ == "__main__":
    main()
