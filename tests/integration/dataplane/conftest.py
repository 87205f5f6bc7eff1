"""One gateway with one worker for all tests of a module.

Read next: tests/support/dataplane.py.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.dataplane import Plane


@pytest.fixture(scope="module")
def plane() -> Iterator[Plane]:
    """Ready; small limits, so that they can be reached."""
    running = Plane(GPUBUS_BODY_LIMIT=str(1 << 20), GPUBUS_FIRST_BYTE_SECONDS="2", GPUBUS_IDLE_SECONDS="2")
    try:
        yield running.start()
    finally:
        running.close()
