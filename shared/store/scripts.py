"""The Lua scripts by name, with their digests.

Must not talk to Redis. Read next: scripts/commit.lua.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_FOLDER = Path(__file__).parent / "scripts"


@dataclass(frozen=True, slots=True)
class Script:
    """One script's text and the digest EVALSHA calls it by."""

    text: str
    sha: str


def _load(name: str) -> Script:
    text = (_FOLDER / f"{name}.lua").read_text(encoding="utf-8")
    return Script(text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


RECOVER = _load("recover")
"""Run by EVAL only: everything below is loaded after it, so NOSCRIPT means "recover first"."""
GATED: Mapping[str, Script] = {name: _load(name) for name in ("commit", "lease", "snapshot", "checkpoint")}
READ_ONLY = frozenset({"snapshot"})
