"""Stacks that stories share: each brought up once a session, taken down at its end with nothing left running.

A story keeps to namespaces or names of its own and leaves the stack as it found it. Read next: tests/e2e/story.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.story import Cards, cards_free
from tests.support.stack import Stack
from tests.support.wait import eventually_sync

FLEET = Path(__file__).parents[2] / "deploy" / "samples" / "fleet.yaml"


def started(data_dir: Path, *extra: str, env: dict[str, str] | None = None) -> Iterator[Stack]:
    """A running stack; its processes end with the fixture, also when it could not start."""
    stack = Stack(data_dir, *extra, env=env)
    try:
        yield stack.up()
    finally:
        stack.down()


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Two simulated nodes with four cards each, beside this host."""
    yield from started(tmp_path_factory.mktemp("shared"), "--fleet", str(FLEET))


@pytest.fixture(scope="session")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A stack that nobody ever asks for anything: no fleet, no deployment."""
    yield from started(tmp_path_factory.mktemp("bare"))


@pytest.fixture
def fleet(stack: Stack) -> Iterator[Stack]:
    """The shared stack with every card free before and after, and no card held twice at any moment in between."""
    eventually_sync(lambda: cards_free(stack), timeout=30)
    with Cards(stack) as watched:
        yield stack
        eventually_sync(lambda: cards_free(stack), timeout=30)
    assert not watched.doubled
    assert watched.seen, "the watch saw no Workload at all"
