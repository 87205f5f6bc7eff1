"""Redis' append-only file after a host crash: find the last whole transaction and cut what follows, keeping a copy.

Run as `python -m gpubus.stack.aof REDIS_DIR` when Redis refused to start; prints one sentence a repair. Redis truncates
a short tail itself; what it refuses is garbage, such as a block of zeros. Only the last increment can be cut: damage
anywhere else is not a crash's doing. Standard library only. Read next: gpubus/stack/redis.py.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import BinaryIO

DIRECTORY = "appendonlydir"
_LINE = 64
_MOST_WORDS = 1 << 20
_MOST_BYTES = 512 << 20


def last_increment(redis_dir: Path) -> Path | None:
    """The file Redis was appending to, by the manifest; None when there is none."""
    found: tuple[int, Path] | None = None
    for manifest in (redis_dir / DIRECTORY).glob("*.manifest"):
        for line in manifest.read_text(errors="replace").splitlines():
            words = line.split()
            entry = dict(zip(words[::2], words[1::2], strict=False))
            if entry.get("type") == "i" and entry.get("seq", "").isdigit():
                candidate = (int(entry["seq"]), manifest.parent / entry.get("file", ""))
                found = max(found or candidate, candidate)
    return found[1] if found and found[1].is_file() else None


def whole_until(file: BinaryIO) -> int:
    """Offset after the last complete command outside a transaction, or the last complete EXEC."""
    good, inside = 0, False
    while (name := _command(file)) is not None:
        if name == b"MULTI":
            inside = True
        elif name == b"EXEC":
            inside = False
        if not inside:
            good = file.tell()
    return good


def _command(file: BinaryIO) -> bytes | None:
    """Read one command and return its name (empty for a `#` annotation); None where the format ends."""
    line = file.readline(_LINE)
    if line.startswith(b"#"):
        return b"" if line.endswith(b"\r\n") else None
    words = _number(line, b"*", _MOST_WORDS)
    if words < 1:
        return None
    name = _word(file)
    for _ in range(words - 1):
        if name is None or not _skip(file):
            return None
    return name


def _number(line: bytes, mark: bytes, most: int) -> int:
    digits = line[1:-2]
    if not (line.startswith(mark) and line.endswith(b"\r\n") and digits.isdigit()):
        return -1
    return int(digits) if int(digits) <= most else -1


def _word(file: BinaryIO) -> bytes | None:
    size = _number(file.readline(_LINE), b"$", _LINE)
    if size < 0:
        return None
    word = file.read(size + 2)
    return word[:-2].upper() if len(word) == size + 2 and word.endswith(b"\r\n") else None


def _skip(file: BinaryIO) -> bool:
    size = _number(file.readline(_LINE), b"$", _MOST_BYTES)
    if size < 0:
        return False
    file.seek(size, os.SEEK_CUR)
    return file.read(2) == b"\r\n"


def repair(redis_dir: Path) -> str:
    """Cut the damaged tail; the sentence for the user, empty when there was nothing to cut."""
    path = last_increment(redis_dir)
    if path is None:
        return ""
    with path.open("rb") as file:
        good = whole_until(file)
    lost = path.stat().st_size - good
    if lost == 0:
        return ""
    copy = _keep(path, redis_dir / "damaged")
    with path.open("r+b") as file:
        file.truncate(good)
        os.fsync(file.fileno())
    return (
        f"Redis could not read the last {lost} bytes of {path.name} (a host crash leaves that); they were cut off after the "
        f"last whole transaction, the damaged file is kept as {copy}, and nodes report anew before their cards are given out."
    )


def _keep(path: Path, folder: Path) -> Path:
    folder.mkdir(mode=0o700, exist_ok=True)
    number = 1
    while (copy := folder / f"{path.name}.{number}").exists():
        number += 1
    shutil.copyfile(path, copy)
    return copy


if __name__ == "__main__":
    _sentence = repair(Path(sys.argv[1]))
    if _sentence:
        print(_sentence)
    sys.exit(0 if _sentence else 1)
