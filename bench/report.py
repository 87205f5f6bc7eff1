"""Numbers into words: percentiles, the machine, the lines that `make bench` prints.

Must not measure. Read next: bench/__main__.py.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def percentiles(samples: Sequence[float]) -> dict[str, float]:
    """p50, p99, worst and count of samples; the 99th percentile of fewer than 100 samples is the worst."""
    ordered = sorted(samples)
    if not ordered:
        return {"count": 0}
    return {
        "p50": round(ordered[len(ordered) // 2], 3),
        "p99": round(ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))], 3),
        "worst": round(ordered[-1], 3),
        "count": len(ordered),
    }


def machine() -> dict[str, Any]:
    """What the numbers were taken on."""
    return {
        "cpu": _first("/proc/cpuinfo", "model name"),
        "cores": os.cpu_count(),
        "memory": _first("/proc/meminfo", "MemTotal"),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


def _first(path: str, field: str) -> str:
    for line in Path(path).read_text().splitlines():
        if line.startswith(field):
            return line.partition(":")[2].strip()
    return "unknown"


def lines(name: str, value: Any) -> list[str]:
    """`name  value` lines of a nested result, one a leaf mapping."""
    if isinstance(value, Mapping) and any(isinstance(v, Mapping) for v in value.values()):
        return [line for key, inner in value.items() for line in lines(f"{name} {key}", inner)]
    if isinstance(value, Mapping):
        return [f"{name:<44} " + "  ".join(f"{k} {v}" for k, v in value.items())]
    return [f"{name:<44} {value}"]
