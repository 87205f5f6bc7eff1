"""One gateway for all tests of a module, on servers of its own.

Read next: tests/support/gateway.py.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.gateway import Gateway


@pytest.fixture(scope="module")
def gateway() -> Iterator[Gateway]:
    """Ready; a test that kills something starts it again."""
    running = Gateway()
    try:
        yield running.start()
    finally:
        running.close()
