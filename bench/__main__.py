"""Measure everything, print it, and write bench/results.json. `python -m bench [NAME ...]` measures only those.

Each module measures one thing and runs alone too. What cannot be measured here says why instead of a number.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from pathlib import Path
from typing import Any

from bench.report import lines, machine

NAMES = ("commits", "facts", "stack", "demo", "gateway", "admissions", "prefix_index")
RESULTS = Path(__file__).parent / "results.json"


def measured(name: str) -> Any:
    """What the module found, or why it found nothing: one failure does not take the others' numbers."""
    try:
        return importlib.import_module(f"bench.{name}").measure()
    except Exception as error:
        return f"not measured: {type(error).__name__}: {error}"


def main(names: list[str]) -> None:
    """Measure, print, write; the results of modules not asked for stay."""
    unknown = sorted(set(names) - set(NAMES))
    if unknown:
        sys.exit(f"unknown: {', '.join(unknown)}; there are {', '.join(NAMES)}")
    results: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() and names else {}
    results["machine"] = machine()
    print("\n".join(lines("machine", results["machine"])), flush=True)
    for name in names or NAMES:
        started = time.perf_counter()
        results[name] = measured(name)
        print("\n".join(lines(name, results[name])), flush=True)
        print(f"  ({name} took {time.perf_counter() - started:.0f} s)", flush=True)
        RESULTS.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
