"""The local hub's folder: import a directory as a repository, and look repositories up.

An import is atomic: the commit's folder appears whole, then the ref points to it. Read next: hub_server.py.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from services.modelstore.domain import hub
from services.modelstore.domain.hub import HubFile
from shared.errors import InvalidArgument

_CHUNK = 1 << 20


class HubFolder:
    """Repositories below one folder."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def holds(self, repository: str) -> bool:
        """Whether the repository was imported."""
        return not hub.repository_problem(repository) and (self._root / repository / "refs").is_dir()

    def commit(self, repository: str, revision: str) -> str | None:
        """The commit a branch, tag or commit means now."""
        if not self.holds(repository):
            return None
        if hub.is_commit(revision):
            return revision if (self._root / repository / "commits" / revision).is_dir() else None
        if hub.revision_problem(revision):
            return None
        try:
            return (self._root / repository / "refs" / revision).read_text().strip()
        except OSError:
            return None

    def files(self, repository: str, commit: str) -> tuple[HubFile, ...]:
        """All files of a commit that `commit` returned."""
        return hub.load((self._root / repository / "commits" / commit / "manifest.json").read_text())

    def path(self, repository: str, commit: str, file: HubFile) -> Path:
        """Where a file's bytes are."""
        return self._root / repository / "commits" / commit / "files" / file.path

    def add(self, source: Path, repository: str, revision: str = "main") -> tuple[str, tuple[HubFile, ...]]:
        """Import a directory; files are hard-linked where the file system allows, else copied.

        Raises:
            InvalidArgument: a bad name, nothing to import, or a link that leaves the directory.
        """
        problem = hub.repository_problem(repository) or hub.revision_problem(revision)
        if problem:
            raise InvalidArgument(problem)
        source = source.resolve()
        if not source.is_dir():
            raise InvalidArgument(f"{source} is not a directory; name the one that holds the model's files")
        home = self._root / repository
        (home / "commits").mkdir(parents=True, exist_ok=True)
        (home / "refs").mkdir(exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=".import-", dir=home))
        try:
            files = tuple(_take(source, path, staging / "files") for path in _walk(source))
            if not files:
                raise InvalidArgument(f"{source} holds no files")
            commit = hub.commit_of(files)
            (staging / "manifest.json").write_text(hub.dump(files))
            if not (home / "commits" / commit).exists():
                staging.rename(home / "commits" / commit)
        finally:
            shutil.rmtree(staging, ignore_errors=True)
        _point(home / "refs" / revision, commit)
        return commit, files


def _walk(source: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(source):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            if not name.startswith("."):
                yield Path(folder) / name


def _take(source: Path, path: Path, target: Path) -> HubFile:
    relative = path.relative_to(source).as_posix()
    real = path.resolve()
    problem = hub.file_problem(relative)
    if problem:
        raise InvalidArgument(f"{relative}: {problem}")
    if not real.is_relative_to(source) or not real.is_file():
        raise InvalidArgument(f"{relative} points outside of {source}; copy the file there")
    place = target / relative
    place.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(real, place)
    except OSError:
        shutil.copyfile(real, place)
    size = place.stat().st_size
    sha256, gitsha1 = hashlib.sha256(), hashlib.sha1(b"blob %d\0" % size)  # noqa: S324 - git blob id
    with place.open("rb") as file:
        while chunk := file.read(_CHUNK):
            sha256.update(chunk)
            gitsha1.update(chunk)
    return HubFile(relative, size, sha256.hexdigest(), gitsha1.hexdigest())


def _point(ref: Path, commit: str) -> None:
    temporary = ref.with_name(f".{ref.name}.{os.getpid()}")
    temporary.write_text(commit)
    temporary.replace(ref)
