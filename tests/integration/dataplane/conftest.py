"""One gateway with one worker for all tests of a module.

Read next: tests/support/dataplane.py.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.dataplane import Plane


@pytest.fixture(scope="module")
def plane() -> Iterator[Plane]:
    """Ready; with a small limit of bodies, so that it can be reached."""
    running = Plane(GPUBUS_BODY_LIMIT=str(1 << 20))
    try:
        yield running.start()
    finally:
        running.close()
