"""Fault points: named places where a test may stop, freeze or delay a real process.

Off unless a setting names a point; then the process does there what the setting says. Production never sets it.
Read next: tests/e2e, which reach every step of the journey this way.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

_ARMED: dict[str, Callable[[], None]] = {}


def arm(spec: str) -> None:
    """Arm points from `point=action[@flagfile]` items separated by commas; actions: kill, stop, exit.

    With a flag file the point fires only while the file exists and removes it first, so it fires once across restarts.
    """
    for item in filter(None, (part.strip() for part in spec.split(","))):
        point, _, rest = item.partition("=")
        action, _, flag = rest.partition("@")
        _ARMED[point] = _fire(action, Path(flag) if flag else None)


def _fire(action: str, flag: Path | None) -> Callable[[], None]:
    signals = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "exit": signal.SIGTERM}
    if action not in signals:
        message = f"fault action {action!r} is not one of {sorted(signals)}"
        raise ValueError(message)

    def fire() -> None:
        if flag is not None:
            try:
                flag.unlink()
            except FileNotFoundError:
                return
        os.kill(os.getpid(), signals[action])

    return fire


def point(name: str) -> None:
    """Mark a place; costs one dictionary look-up when nothing is armed."""
    fire = _ARMED.get(name)
    if fire is not None:
        fire()
