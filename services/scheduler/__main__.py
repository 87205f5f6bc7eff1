"""`python -m services.scheduler` runs the controller; it has no node part.

Read next: app.py.
"""

from __future__ import annotations

from services.scheduler.app import main

if __name__ == "__main__":
    main()
