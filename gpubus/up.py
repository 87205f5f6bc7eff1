"""`gpubus up`: refuse or prepare, start the supervisor, wait until everything answers, and say where.

Owns the order of start-up. The supervisor lives on by itself; in the foreground this command waits and takes the stack
down on Ctrl-C. Read next: gpubus/stack/layout.py (what runs), gpubus/supervisor.py (who runs it).
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from gpubus.datadir import DataDir
from gpubus.down import down
from gpubus.procs import Process
from gpubus.stack.launch import Tell, spawn_supervisor, wait_ready
from gpubus.stack.layout import Command
from gpubus.stack.plan import python
from gpubus.stack.preparation import Prepared, check_options, prepare
from gpubus.stack.refusals import check_free, check_host, lock
from shared.clock import SystemClock


@dataclass(frozen=True, slots=True)
class UpOptions:
    """The flags of `gpubus up`."""

    host: str = "127.0.0.1"
    port: int = 8080
    tls_port: int | None = None
    """None: port + 1, or a free one when port is 0."""
    runtime: str = "process"
    fleet: Path | None = None
    nats: str = ""
    redis: str = ""
    listen: str = ""
    """Address on which NATS takes other hosts, with TLS."""
    workers: int = 0
    """Gateway workers; 0: one a core but one."""
    settings: dict[str, str] = field(default_factory=dict)
    """More settings for every service."""
    command: Command = python
    """The command line of a service; tests stand in for services with it."""


@dataclass(frozen=True, slots=True)
class Running:
    """A stack that answers."""

    where: DataDir
    prepared: Prepared
    supervisor: Process
    seconds: float
    notes: tuple[str, ...]


def start(where: DataDir, options: UpOptions, tell: Tell) -> Running:
    """Bring a stack up; nothing is left running when it cannot be.

    Raises:
        Refusal: why not.
    """
    clock = SystemClock()
    began = clock.monotonic()
    check_host(where)
    check_free(where)
    check_options(options)
    held = lock(where)
    try:
        prepared = prepare(where, options)
        supervisor = spawn_supervisor(where, held, prepared.reservations)
    finally:
        os.close(held)
    try:
        notes = wait_ready(where, supervisor, tell)
        prepared.finish()
    except BaseException:
        down(where)
        raise
    return Running(where, prepared, supervisor, clock.monotonic() - began, notes)
