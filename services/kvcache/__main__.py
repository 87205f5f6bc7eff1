"""`python -m services.kvcache` runs the controller; it has no node part.

Read next: app.py.
"""

from __future__ import annotations

from services.kvcache.app import main

if __name__ == "__main__":
    main()
