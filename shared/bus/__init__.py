"""NATS: the raw client that every process has, and FastStream for what controllers consume durably.

Only this package imports `nats` and `faststream`. Read next: shared/bus/router.py.
"""

from shared.bus import lean

__all__ = ["lean"]
