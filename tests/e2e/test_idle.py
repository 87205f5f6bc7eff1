"""What a stack costs that nobody uses: memory is a promise, CPU is measured and printed."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.support.stack import Stack

pytestmark = pytest.mark.timeout(180)
SETTLE_SECONDS = 5
MEASURED_SECONDS = 20
MOST_PSS_MB = 700


def pss_kib(pid: int) -> int:
    """Proportional share of one process's memory: shared pages are counted once over all that share them."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1])
    return 0


def cpu_seconds(pid: int) -> float:
    """User and system time so far, its ended children included."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return sum(int(fields[number]) for number in (11, 12, 13, 14)) / os.sysconf("SC_CLK_TCK")


def test_the_idle_stack_is_small_and_quiet(bare: Stack):
    pids = bare.pids()
    assert len(pids) >= 13
    time.sleep(SETTLE_SECONDS)
    before, began = {name: cpu_seconds(pid) for name, pid in pids.items()}, time.monotonic()
    time.sleep(MEASURED_SECONDS)
    seconds = time.monotonic() - began
    cores = {name: (cpu_seconds(pid) - before[name]) / seconds for name, pid in pids.items()}
    memory = {name: pss_kib(pid) / 1024 for name, pid in pids.items()}

    print("\nprocess            PSS MiB   cores")
    for name in sorted(pids, key=lambda one: -cores[one]):
        print(f"{name:<18} {memory[name]:7.1f} {cores[name]:7.4f}")
    print(f"{'sum':<18} {sum(memory.values()):7.1f} {sum(cores.values()):7.4f}")
    assert bare.pids() == pids, "a process was restarted while nothing happened"
    assert sum(memory.values()) * 1.048576 <= MOST_PSS_MB
