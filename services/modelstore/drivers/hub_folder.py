"""The local hub's folder: import a directory as a repository, and look repositories up.

An import is atomic: the commit's folder appears whole, then the ref points to it. Read next: hub_server.py.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from services.modelstore.domain import hub
from services.modelstore.domain.hub import HubFile
from shared.errors import InvalidArgument

_CHUNK = 1 << 20
_LINKED_BYTES = 1 << 20
"""From here on a file is linked rather than copied."""


class HubFolder:
    """Repositories below one folder."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def holds(self, repository: str) -> bool:
        """Whether the repository was imported."""
        return not hub.repository_problem(repository) and any(_refs(self._root / repository))

    def commit(self, repository: str, revision: str) -> str | None:
        """The commit a branch, tag or commit means now."""
        if not self.holds(repository):
            return None
        if hub.is_commit(revision):
            return revision if (self._root / repository / "commits" / revision).is_dir() else None
        if hub.revision_problem(revision):
            return None
        try:
            commit = (self._root / repository / "refs" / revision).read_text().strip()
        except (OSError, ValueError):
            return None
        # A host that crashed while importing may have left a ref to nothing.
        return self.commit(repository, commit) if hub.is_commit(commit) else None

    def files(self, repository: str, commit: str) -> tuple[HubFile, ...]:
        """All files of a commit that `commit` returned."""
        return hub.load((self._root / repository / "commits" / commit / "manifest.json").read_text())

    def path(self, repository: str, commit: str, file: HubFile) -> Path:
        """Where a file's bytes are."""
        return self._root / repository / "commits" / commit / "files" / file.path

    def add(self, source: Path, repository: str, revision: str = "main") -> tuple[str, tuple[HubFile, ...]]:
        """Import a directory; large files are hard-linked where the file system allows, the others are copied.

        One import of a repository at a time, by any process.

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
        with _locked(home):
            for left in home.glob(".import-*"):  # of an import that was killed
                shutil.rmtree(left, ignore_errors=True)
            commit, files = _import(source, home)
            (home / "refs").mkdir(exist_ok=True)
            _point(home / "refs" / revision, commit)
        return commit, files


def _refs(home: Path) -> Iterator[Path]:
    """The branches and tags of a repository; none before its first import is complete."""
    return (ref for ref in (home / "refs").glob("*") if not ref.name.startswith("."))


@contextmanager
def _locked(home: Path) -> Iterator[None]:
    """Alone in a repository; the kernel ends it with the process."""
    descriptor = os.open(home, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _import(source: Path, home: Path) -> tuple[str, tuple[HubFile, ...]]:
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
    return commit, files


def _walk(source: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(source):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        link = next((name for name in folders if (Path(folder) / name).is_symlink()), None)
        if link is not None:
            where = (Path(folder) / link).relative_to(source)
            raise InvalidArgument(f"{where} is a link to a directory; put the directory itself there")
        for name in sorted(names):
            if not name.startswith("."):
                yield Path(folder) / name


def _take(source: Path, path: Path, target: Path) -> HubFile:
    relative = path.relative_to(source).as_posix()
    real = path.resolve()
    problem = hub.file_problem(relative)
    if problem:
        raise InvalidArgument(f"{relative!r} {problem}")
    if not real.is_relative_to(source) or not real.is_file():
        raise InvalidArgument(f"{relative} points outside of {source}, or is no file; copy the file there")
    place = target / relative
    place.parent.mkdir(parents=True, exist_ok=True)
    _place(real, place)
    size, read = place.stat().st_size, 0
    sha256, gitsha1 = hashlib.sha256(), hashlib.sha1(b"blob %d\0" % size)  # noqa: S324 - git blob id
    with place.open("rb") as file:
        while chunk := file.read(_CHUNK):
            sha256.update(chunk)
            gitsha1.update(chunk)
            read += len(chunk)
    if read != size:
        raise InvalidArgument(f"{relative} changed while it was read; import it when it is complete")
    return HubFile(relative, size, sha256.hexdigest(), gitsha1.hexdigest())


def _place(real: Path, place: Path) -> None:
    # Small files are edited in place, which would change a commit that shares them; weights are replaced.
    if real.stat().st_size >= _LINKED_BYTES:
        try:
            os.link(real, place)
        except OSError:
            pass  # another file system
        else:
            return
    shutil.copyfile(real, place)


def _point(ref: Path, commit: str) -> None:
    temporary = ref.with_name(f".{ref.name}.{os.getpid()}")
    temporary.write_text(commit)
    temporary.replace(ref)
