"""NATS: the raw client that every process has, and FastStream for what controllers consume durably.

Only this package imports `nats` and `faststream`. Read next: shared/bus/router.py.
"""

from shared.bus.lean import hidden

# nats-py takes aiohttp for websockets when it finds it: 8 MB a process that nobody uses.
with hidden("aiohttp"):
    import nats.aio.client  # noqa: F401
