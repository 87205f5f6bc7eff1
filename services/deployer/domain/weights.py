"""Which file of a manifest an engine loads.

Pure. Read next: engine_llamacpp.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_SHARD = re.compile(r"(?P<stem>.+)-(?P<number>[0-9]{5})-of-(?P<total>[0-9]{5})\.gguf", re.ASCII | re.IGNORECASE)
_SHOWN = 5


def gguf_models(paths: Iterable[str]) -> list[str]:
    """One path for each GGUF model, the first of its shards where it has several; projector files are no models."""
    models: list[str] = []
    for path in sorted(paths):
        name = path.rpartition("/")[2].lower()
        if not name.endswith(".gguf") or name.startswith("mmproj"):
            continue
        shard = _SHARD.fullmatch(path)
        if shard is None or int(shard["number"]) == 1:
            models.append(path)
    return models


def gguf_problem(paths: Iterable[str]) -> str:
    """Why llama.cpp cannot serve these files; empty when it can."""
    models = gguf_models(paths)
    if len(models) == 1:
        return ""
    way_out = "LlamaCpp needs exactly one *.gguf; choose it with the artifact's allowPatterns"
    if not models:
        return f"the artifact has no *.gguf file; {way_out}"
    more = ", ..." if len(models) > _SHOWN else ""
    return f"the artifact has {len(models)} *.gguf files ({', '.join(models[:_SHOWN])}{more}); {way_out}"
