"""`python -m tests.support.run FOLDER WORKERS`: the tests of a folder side by side, and what failed once more, alone.

Tests with real servers share few cores, and one may lose a race that has nothing to do with what it tests. Such a test is
named here to be mended; more than a few of them, a skip, or a test that fails alone too, fail the run (docs/adr/0010).
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

MOST = 3
"""So many may be asked again; more is no accident."""
_LAST_FAILED = Path(".pytest_cache/v/cache/lastfailed")
_TESTS_FAILED = 1


def main(folder: str, workers: str) -> int:
    """The exit status of pytest."""
    _LAST_FAILED.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", folder, "-q"]
    status = subprocess.run([*command, "-n", workers, "--dist", "loadfile"], check=False).returncode
    failed = sorted(json.loads(_LAST_FAILED.read_text())) if _LAST_FAILED.exists() else []
    if status != _TESTS_FAILED or not 0 < len(failed) <= MOST:
        return status
    print(f"\n{len(failed)} failed beside others; once more, alone:", *failed, sep="\n  ", flush=True)
    return subprocess.run([*command, "--last-failed"], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
