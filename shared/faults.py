"""Fault points: named places where a test may stop, freeze or delay a real process.

Off unless a setting names a point; then the process does there what the setting says. Production never sets it.
Read next: tests/e2e, which reach every step of the journey this way.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

EVERYWHERE = "*"
_SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "exit": signal.SIGTERM}
_ARMED: dict[str, Callable[[str], None]] = {}


def arm(spec: str, instance: str = "") -> None:
    """Arm points from items separated by commas; actions are kill, stop and exit.

    `point=action[@flagfile]`: with a flag file the point fires only while the file exists and removes it first, so it
    fires once across restarts.
    `*@directory`: every point; it fires when there is a file `<instance>.<point>` in the directory, which says the
    action, and perhaps a number: `kill 3` fires at the third passing. Files come and go while the process runs.
    """
    for item in filter(None, (part.strip() for part in spec.split(","))):
        if item.startswith(f"{EVERYWHERE}@"):
            _ARMED[EVERYWHERE] = _look_in(Path(item[2:]), instance)
            continue
        point, _, rest = item.partition("=")
        action, _, flag = rest.partition("@")
        _ARMED[point] = _fire(_checked(action), Path(flag) if flag else None)


def _checked(action: str) -> signal.Signals:
    if action not in _SIGNALS:
        message = f"fault action {action!r} is not one of {sorted(_SIGNALS)}"
        raise ValueError(message)
    return _SIGNALS[action]


def _fire(number: signal.Signals, flag: Path | None) -> Callable[[str], None]:
    def fire(_name: str) -> None:
        if flag is not None:
            try:
                flag.unlink()
            except FileNotFoundError:
                return
        os.kill(os.getpid(), number)

    return fire


def _look_in(directory: Path, instance: str) -> Callable[[str], None]:
    def fire(name: str) -> None:
        order = directory / f"{instance}.{name}"
        try:
            action, _, passing = order.read_text().partition(" ")
        except FileNotFoundError:
            return
        if int(passing or 1) > 1:
            order.write_text(f"{action} {int(passing) - 1}")
            return
        order.unlink()
        os.kill(os.getpid(), _checked(action))

    return fire


def point(name: str) -> None:
    """Mark a place; costs one look when nothing is armed."""
    if not _ARMED:
        return
    fire = _ARMED.get(name) or _ARMED.get(EVERYWHERE)
    if fire is not None:
        fire(name)
