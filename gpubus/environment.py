"""The process environment of the command and of what it starts: the only file of the front door that reads it.

Must not be imported by services, which have settings. Read next: gpubus/datadir.py.
"""

from __future__ import annotations

import os
from pathlib import Path

PREFIX = "GPUBUS_"
# One thread each: a service's small NumPy calls gain nothing from a pool, and every idle thread costs memory.
_LEAN = {"OPENBLAS_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "2", "PYTHONUNBUFFERED": "1"}


def variable(name: str) -> str:
    """One variable, empty when unset."""
    return os.environ.get(name, "")  # noqa: TID251 - the door all others go through


def inherited() -> dict[str, str]:
    """What a supervised process gets from the caller's environment: everything but our own settings.

    A `GPUBUS_URL` of another stack in the caller's shell must not reach this one.
    """
    kept = {k: v for k, v in os.environ.items() if not k.startswith(PREFIX)}  # noqa: TID251 - as above
    kept.update({k: v for k, v in _LEAN.items() if k not in kept})
    kept["PYTHONPATH"] = os.pathsep.join(
        dict.fromkeys([str(code_root()), *kept.get("PYTHONPATH", "").split(os.pathsep)])
    )
    return kept


def code_root() -> Path:
    """The folder that holds `gpubus`, `services` and `shared`: a checkout, or site-packages."""
    return Path(__file__).resolve().parent.parent


def parse(text: str) -> dict[str, str]:
    """`NAME=value` lines, with or without `export` and single quotes, as our own files have them."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        name, mark, value = line.strip().removeprefix("export ").partition("=")
        if mark and not name.startswith("#"):
            found[name.strip()] = value.strip().strip("'")
    return found


_OWN = frozenset(
    {"GPUBUS_URL", "GPUBUS_TOKEN", "GPUBUS_DATA_DIR", "GPUBUS_DURABLE", "GPUBUS_INSTANCE", "GPUBUS_HEALTH_PORT"}
)


def settings_for_services() -> dict[str, str]:
    """Settings in the caller's environment that are meant for services, such as GPUBUS_LOG_LEVEL or GPUBUS_TRACES."""
    return {k: v for k, v in os.environ.items() if k.startswith(PREFIX) and k not in _OWN}  # noqa: TID251 - as above
