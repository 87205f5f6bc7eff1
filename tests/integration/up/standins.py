"""Stacks of stand-ins: the real supervisor, lock and ports, without the services' seconds."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gpubus.datadir import DataDir, read_json, write
from gpubus.down import down
from gpubus.procs import Process
from gpubus.stack.launch import spawn_supervisor, wait_ready
from gpubus.stack.plan import STOP_PODS, STOP_SERVICES, ProcessPlan, StackPlan
from gpubus.stack.ports import FreePorts
from gpubus.stack.refusals import lock

_STANDIN = Path(__file__).with_name("standin.py")


def standin(free: FreePorts, name: str, kind: str = "good", **more: object) -> ProcessPlan:
    """The plan of one stand-in."""
    port = free.take(name)
    own = {"GPUBUS_INSTANCE": name, "GPUBUS_HEALTH_PORT": str(port)}
    stage = STOP_PODS if name.endswith("-agent") else STOP_SERVICES
    return ProcessPlan(name, [sys.executable, str(_STANDIN), kind], "http", port, stage=stage, own=own, **more)  # type: ignore[arg-type]


def launch(where: DataDir, processes: list[ProcessPlan], free: FreePorts) -> Process:
    """Lock, write the plan, start the supervisor."""
    held = lock(where)
    try:
        for process in processes:
            write(where.env_file(process.name), "GPUBUS_COLOUR=blue\n")
        StackPlan(processes).write(where)
        return spawn_supervisor(where, held, free.reservations)
    finally:
        os.close(held)


@contextmanager
def stack(root: Path, *names: str, **kinds: str) -> Iterator[DataDir]:
    """A ready stack of stand-ins; ended afterwards whatever happened."""
    where, free = DataDir(root), FreePorts()
    try:
        supervisor = launch(
            where, [standin(free, name, kinds.get(name.replace("-", "_"), "good")) for name in names], free
        )
        wait_ready(where, supervisor, lambda _: None)
        yield where
    finally:
        down(where)


def pids(where: DataDir) -> dict[str, int]:
    """pids.json."""
    return {name: int(pid) for name, pid in read_json(where.pids).items()}


def alive(pid: int) -> bool:
    """Whether a pid runs and is no zombie."""
    from gpubus.procs import identity

    return bool(identity(pid))
