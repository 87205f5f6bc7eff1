"""`python -m gpubus.demo`; KEEP=1 leaves the stack up.

Read next: gpubus/demo/story.py.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from gpubus.demo.screen import screen
from gpubus.demo.story import tell
from gpubus.environment import variable


def home() -> Path:
    """`.demo` here; elsewhere when this folder's name has white space, which env files cannot hold."""
    here = Path(".demo").absolute()
    return Path(tempfile.gettempdir()) / f"gpubus-demo-{os.getuid()}" if any(ch.isspace() for ch in str(here)) else here


if __name__ == "__main__":
    sys.exit(tell(screen(), home(), keep=variable("KEEP") not in {"", "0"}))
