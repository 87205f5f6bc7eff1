"""The manifest of a set of weights: its text, its digest, and which paths may be in it.

The content address that modelstore, its agents and deployer agree on. Pure, standard library only.
Read next: services/modelstore/domain/revision.py.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

HEADER = "gpustack-manifest v1\n"
"""First line; what follows is one `<algorithm>:<hex> <size> <path>` line a file, sorted by UTF-8 path bytes."""

Algorithm = Literal["sha256", "gitsha1"]
"""gitsha1 is the git blob id: SHA-1 over `blob <size>`, a zero byte and the content."""

DIGEST = re.compile(r"sha256:[0-9a-f]{64}", re.ASCII)
_HASH_LENGTH = {"sha256": 64, "gitsha1": 40}
_HEX = re.compile(r"[0-9a-f]+", re.ASCII)
_SEGMENT_LIMIT = 255
_PATH_LIMIT = 2048
"""Bytes; what every file system of a node can hold below its store."""
_DEPTH_LIMIT = 64
"""Folders below each other; making and walking deeper ones would exhaust a process before a file system."""
SIZE_LIMIT = 1 << 53
"""Bytes of all files together: above, JSON and Redis would round the number."""
_SIZE_DIGITS = 16


class ManifestError(ValueError):
    """A manifest that must not be delivered; the message says which line and why."""


@dataclass(frozen=True, slots=True)
class ManifestFile:
    """One file: where, how long, and what its content must hash to."""

    path: str
    size: int
    algorithm: Algorithm
    hash: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """A checked set of files. Build with `build` or `decode`, which refuse what could leave the store."""

    files: tuple[ManifestFile, ...]
    text: bytes
    digest: str

    @property
    def size_bytes(self) -> int:
        """Sum of the files."""
        return sum(file.size for file in self.files)


def build(files: Iterable[ManifestFile]) -> Manifest:
    """The manifest of some files, in any order.

    Raises:
        ManifestError: a path could leave the store or names two things; a size or hash is none.
    """
    listed = tuple(files)
    for file in listed:
        _check(file)
    ordered = tuple(sorted(listed, key=lambda file: file.path.encode()))
    _check_tree(ordered)
    _check_sizes(ordered)
    lines = (f"{file.algorithm}:{file.hash} {file.size} {file.path}\n" for file in ordered)
    text = (HEADER + "".join(lines)).encode()
    return Manifest(ordered, text, digest_of(text))


def decode(text: bytes) -> Manifest:
    """Read a manifest's text; only the one canonical form is accepted.

    Raises:
        ManifestError: it is not that.
    """
    try:
        lines = text.decode().removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        raise ManifestError("is not UTF-8") from error
    if lines[0] + "\n" != HEADER:
        raise ManifestError(f"does not begin with {HEADER.strip()!r}")
    manifest = build(_file(line) for line in lines[1:])
    if manifest.text != text:
        raise ManifestError("is not in canonical form")
    return manifest


def digest_of(text: bytes) -> str:
    """`sha256:` and the SHA-256 of the text."""
    return f"sha256:{hashlib.sha256(text).hexdigest()}"


def path_problem(path: str) -> str:
    """Why a path must not be in a manifest; empty when it may."""
    try:
        raw = path.encode()
    except UnicodeEncodeError:
        return "is not UTF-8"
    if len(raw) > _PATH_LIMIT:
        return f"is longer than {_PATH_LIMIT} bytes"
    if any(unicodedata.category(ch) == "Cc" for ch in path):
        return "has control characters"
    segments = path.split("/")
    if len(segments) > _DEPTH_LIMIT:
        return f"lies deeper than {_DEPTH_LIMIT} folders"
    for segment in segments:
        if segment in {"", ".", ".."}:
            return "is not a plain relative path"
        if len(segment.encode()) > _SEGMENT_LIMIT:
            return f"has a name longer than {_SEGMENT_LIMIT} bytes"
    return ""


def _file(line: str) -> ManifestFile:
    algorithm, mark, rest = line.partition(":")
    parts = rest.split(" ", 2)
    if not mark or len(parts) != 3 or algorithm not in get_args(Algorithm):
        raise ManifestError(f"line {line[:80]!r} is not '<algorithm>:<hex> <size> <path>'")
    hexadecimal, size, path = parts
    if not (size.isascii() and size.isdigit() and len(size) <= _SIZE_DIGITS):
        raise ManifestError(f"{path!r}: size {size[:20]!r} is no number")
    return ManifestFile(path, int(size), "sha256" if algorithm == "sha256" else "gitsha1", hexadecimal)


def _check(file: ManifestFile) -> None:
    problem = path_problem(file.path)
    if problem:
        raise ManifestError(f"path {file.path[:80]!r} {problem}")
    if file.size < 0:
        raise ManifestError(f"{file.path!r}: size {file.size} is negative")
    if len(file.hash) != _HASH_LENGTH[file.algorithm] or not _HEX.fullmatch(file.hash):
        raise ManifestError(
            f"{file.path!r}: its {file.algorithm} is not {_HASH_LENGTH[file.algorithm]} lower-case hex digits"
        )


def _check_tree(files: tuple[ManifestFile, ...]) -> None:
    """No path twice, none that is both a file and a folder."""
    seen = {file.path for file in files}
    if len(seen) != len(files):
        raise ManifestError("names a path twice")
    for path in seen:
        parent = path.rpartition("/")[0]
        while parent:
            if parent in seen:
                raise ManifestError(f"{parent!r} is a file and a folder")
            parent = parent.rpartition("/")[0]


def _check_sizes(files: tuple[ManifestFile, ...]) -> None:
    """The sum is a number that everybody can hold; content of one hash has one size."""
    if sum(file.size for file in files) >= SIZE_LIMIT:
        raise ManifestError(f"all files together have more than {SIZE_LIMIT} bytes")
    sizes: dict[tuple[str, str], int] = {}
    for file in files:
        if sizes.setdefault((file.algorithm, file.hash), file.size) != file.size:
            raise ManifestError(f"{file.path!r} has the hash of a file of another size")
