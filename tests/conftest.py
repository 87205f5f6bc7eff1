"""Markers by folder, no network in unit tests, and the real servers as session fixtures.

Nothing here is importable by tests; shared code lives in tests/support. Read next: tests/support/servers.py.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from pytest_socket import disable_socket

from tests.support.servers import NatsServer, RedisServer

MAY_SKIP = "GPUBUS_TESTS_MAY_SKIP"
_HERE = Path(__file__).parent
# A shell that starts us in the background has us ignore Ctrl-C, and our children would too: tests send it to them.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


_skipped: dict[str, str] = {}
"""Test to reason. None is expected: a skip would hide that a part was not tested."""


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Remember skips; with several workers, all reports come through the first process."""
    if report.skipped:
        _skipped[report.nodeid] = str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A session with a skipped test has failed, unless MAY_SKIP says how many may be."""
    if len(_skipped) > int(os.environ.get(MAY_SKIP, "0")) and not hasattr(session.config, "workerinput"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what was skipped and why."""
    for test, reason in _skipped.items():
        terminalreporter.write_line(f"SKIPPED {test}: {reason} (fails the run; {MAY_SKIP}=N lets N tests be skipped)")


def _level(item: pytest.Item) -> str:
    path = item.path
    return path.relative_to(_HERE).parts[0] if path.is_relative_to(_HERE) else ""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test's level is its folder."""
    for item in items:
        level = _level(item)
        if level in {"integration", "e2e"}:
            item.add_marker(getattr(pytest.mark, level))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Unit tests see no network; pytest-socket lifts the ban at teardown."""
    if _level(item) == "unit":
        disable_socket(allow_unix_socket=True)


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    """One Redis for the session; a test that kills it must start it again. `redis_server.flush()` empties it."""
    server = RedisServer()
    server.start()
    yield server
    server.close()


@pytest.fixture(scope="session")
def nats_server() -> Iterator[NatsServer]:
    """One nats-server (JetStream on) for the session; a test that kills it must start it again."""
    server = NatsServer()
    server.start()
    yield server
    server.close()
