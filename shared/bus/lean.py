"""Imports that leave optional packages out: idle memory is a promise, and both NATS libraries take whatever they find.

Must not change what a library does when the package is not installed at all.
Read next: shared/bus/broker.py.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def hidden(*packages: str) -> Iterator[None]:
    """Inside, the packages look as if they were not installed; ones that are imported already stay."""
    absent = [name for name in packages if name not in sys.modules]
    for name in absent:
        sys.modules[name] = None  # type: ignore[assignment]  # the import system's own way to say "not there"
    try:
        yield
    finally:
        for name in absent:
            del sys.modules[name]


# Imported with the package, before any other module can take it whole: nats-py loads aiohttp for websockets, 8 MB a
# process that nobody uses.
with hidden("aiohttp"):
    import nats.aio.client  # noqa: F401
