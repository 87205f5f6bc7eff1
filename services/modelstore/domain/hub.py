"""The local hub's contents: which names are good, what a commit is, which files count as large. Pure.

Layout below the hub's folder: `<owner>/<name>/refs/<revision>` holds a commit id,
`<owner>/<name>/commits/<commit>/manifest.json` lists files, `.../files/<path>` are the files.
Read next: services/modelstore/drivers/hub_folder.py.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from shared.manifest import path_problem

_REPOSITORY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}/[A-Za-z0-9][A-Za-z0-9._-]{0,95}", re.ASCII)
_REVISION = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}", re.ASCII)
_COMMIT = re.compile(r"[0-9a-f]{40}", re.ASCII)
_LARGE_BYTES = 1_000_000
_LARGE_NAMES = (".gguf", ".safetensors", ".bin", ".pt", ".onnx")


@dataclass(frozen=True, slots=True)
class HubFile:
    """One file of a commit. `sha256` is the ETag of large files, `gitsha1` of the others."""

    path: str
    size: int
    sha256: str
    gitsha1: str

    @property
    def large(self) -> bool:
        """Whether it counts as an LFS file."""
        return self.size >= _LARGE_BYTES or self.path.endswith(_LARGE_NAMES)

    @property
    def etag(self) -> str:
        """The hash that the hub names it by."""
        return self.sha256 if self.large else self.gitsha1

    def entry(self) -> dict[str, Any]:
        """As the tree API lists it."""
        entry: dict[str, Any] = {"type": "file", "oid": self.gitsha1, "size": self.size, "path": self.path}
        if self.large:
            entry["lfs"] = {"oid": self.sha256, "size": self.size, "pointerSize": 134}
        return entry


def repository_problem(repository: str) -> str:
    """Why a repository cannot have this name; empty when it can."""
    if not _REPOSITORY.fullmatch(repository) or ".." in repository:
        return f"{repository!r} is not OWNER/NAME with letters, digits, '.', '_' and '-'"
    return ""


def revision_problem(revision: str) -> str:
    """Why a revision cannot have this name; empty when it can."""
    if not _REVISION.fullmatch(revision) or ".." in revision:
        return f"{revision!r} is not a branch or tag name with letters, digits, '.', '_' and '-'"
    return ""


def is_commit(text: str) -> bool:
    """Whether it is a full commit id."""
    return _COMMIT.fullmatch(text) is not None


def file_problem(path: str) -> str:
    """Why a file cannot be in a repository; empty when it can."""
    return path_problem(path)


def commit_of(files: Sequence[HubFile]) -> str:
    """The commit id of some files: SHA-1 over their canonical list, so equal contents have equal ids."""
    listed = sorted(files, key=lambda file: file.path.encode())
    text = "".join(f"{file.sha256} {file.size} {file.path}\n" for file in listed)
    return hashlib.sha1(text.encode()).hexdigest()  # noqa: S324 - an id in git's form


def dump(files: Sequence[HubFile]) -> str:
    """manifest.json."""
    return json.dumps([asdict(file) for file in sorted(files, key=lambda file: file.path)], indent=1)


def load(text: str) -> tuple[HubFile, ...]:
    """The files of a manifest.json."""
    return tuple(HubFile(item["path"], item["size"], item["sha256"], item["gitsha1"]) for item in json.loads(text))
