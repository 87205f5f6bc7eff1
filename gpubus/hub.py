"""`gpubus hub add`: put a folder into the local hub of a data dir. The modelstore owns the hub's layout and does it.

Must not touch `models/hub` itself. Read next: services/modelstore (hub-add).
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from gpubus.datadir import DataDir, resolve
from gpubus.environment import inherited
from gpubus.refusal import Refusal
from gpubus.stack.plan import python

_REPO = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*", re.ASCII)


def add(directory: Path, repo: str, revision: str, data_dir: str) -> int:
    """Hard-link (else copy) the folder's files into the hub as one commit; the exit code.

    Raises:
        Refusal: no folder, or no repository name.
    """
    return subprocess.run(
        _command(directory, repo, revision, resolve(data_dir)), env=inherited(), check=False
    ).returncode


def add_quietly(directory: Path, repo: str, revision: str, where: DataDir) -> None:
    """The same without output.

    Raises:
        Refusal: it failed, with its last line.
    """
    told = subprocess.run(
        _command(directory, repo, revision, where), env=inherited(), capture_output=True, text=True, check=False
    )
    if told.returncode:
        lines = (told.stderr or told.stdout).strip().splitlines() or ["no reason given"]
        raise Refusal(f"The hub did not take {directory}: {lines[-1]}")


def _command(directory: Path, repo: str, revision: str, where: DataDir) -> list[str]:
    if not directory.is_dir():
        raise Refusal(f"{directory} is no folder: give the one that holds the model's files.")
    if not _REPO.fullmatch(repo):
        raise Refusal(f"--repo {repo!r} is no OWNER/NAME.")
    words = ("hub-add", directory.absolute(), "--repo", repo, "--revision", revision, "--data-dir", where.root)
    return [*python("services.modelstore", *words)]
