"""The layout of a node's store: what is on disk, and how a copy appears there whole or not at all.

Owns the folders below the root (disk.py draws them) and what is checked before a copy counts as held.
Must not download. Read next: disk.py.
"""

from __future__ import annotations

import os
import shutil
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

from services.modelstore.domain.reasons import DeliveryReason
from services.modelstore.drivers.partial import right_on_disk
from services.modelstore.ports import DeliveryError, HeldCopy
from shared.faults import point
from shared.manifest import Manifest, ManifestError, ManifestFile, build, decode
from shared.queries import WantedFile, WantedModel

_FILE_MODE, _FOLDER_MODE, _OWN_FOLDER_MODE = 0o444, 0o555, 0o755


def checked(model: WantedModel) -> Manifest:
    """The manifest that the digest names; every path in it stays below the tree.

    Raises:
        DeliveryError: the list is not the one that the digest names, or has a path that leaves the tree.
    """
    try:
        manifest = build(ManifestFile(f.path, f.size, f.algorithm, f.hash) for f in model.files)
    except ManifestError as error:
        raise DeliveryError(DeliveryReason.INVALID_REQUEST, str(error)) from None
    if manifest.digest != model.digest:
        raise DeliveryError(DeliveryReason.INVALID_REQUEST, f"the list of files has digest {manifest.digest}")
    return manifest


def blob_name(file: WantedFile | ManifestFile) -> str:
    """A file by its content."""
    return f"{file.algorithm}-{file.hash}"


class Trees:
    """The folders below one root."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._blobs, self._trees, self._ready = root / "blobs", root / "trees", root / "ready"
        self._hashed: set[str] = set()
        """Blobs whose bytes this process has hashed; those of an earlier start are hashed once before they are used."""
        self._publishing = threading.Lock()

    def prepare(self) -> None:
        """Make the folders."""
        for name in ("blobs", "partial", "trees", "ready"):
            (self._root / name).mkdir(parents=True, exist_ok=True)

    def partial(self, name: str) -> Path:
        """Where the bytes of a blob arrive."""
        return self._root / "partial" / name

    def has(self, name: str, file: WantedFile, stop: threading.Event) -> bool:
        """Whether a blob is there whose every byte was hashed since this process began.

        One that is wrong (a disk that lost or changed bytes) is removed, and is to be brought again.
        """
        blob = self._blobs / name
        if _size(blob) == file.size and (name in self._hashed or right_on_disk(blob, file, stop)):
            self._hashed.add(name)
            return True
        self._hashed.discard(name)
        blob.unlink(missing_ok=True)
        return False

    def keep(self, name: str) -> None:
        """A partial was verified and is on disk: it is a blob now."""
        partial = self.partial(name)
        partial.chmod(_FILE_MODE)
        partial.replace(self._blobs / name)
        self._hashed.add(name)
        _sync(self._blobs)
        partial.with_name(f"{name}.json").unlink(missing_ok=True)

    def there(self, name: str, file: WantedFile) -> int:
        """Bytes of a file that need not be brought."""
        return min(file.size, max(_size(self._blobs / name), _size(self.partial(name)), 0))

    def stored(self) -> int:
        """Bytes of all blobs."""
        with os.scandir(self._blobs) as entries:
            return sum(entry.stat(follow_symlinks=False).st_size for entry in entries)

    def publish(self, model: WantedModel) -> HeldCopy:
        """Link the blobs into a tree, then mark it whole. A kill leaves either no marker or a whole copy."""
        point("modelstore-agent.before-publish")
        manifest = checked(model)
        with self._publishing:  # a delivery that was given up may still be here
            return self._publish(manifest)

    def _publish(self, manifest: Manifest) -> HeldCopy:
        tree = self._tree(manifest.digest)
        if not self._linked(tree, manifest):
            _remove(tree)
            staging = tree.with_name(f".{tree.name}")
            _remove(staging)
            self._link(staging, manifest)
            staging.rename(tree)
            tree.chmod(_FOLDER_MODE)
            _sync(self._trees)
        marker = self._ready / tree.name
        temporary = marker.with_name(f".{marker.name}")
        temporary.write_bytes(manifest.text)
        _sync(temporary)
        temporary.replace(marker)
        _sync(self._ready)
        point("modelstore-agent.after-publish")
        return HeldCopy(manifest.digest, manifest.size_bytes, str(tree))

    def scan(self) -> list[HeldCopy]:
        """The copies that are whole, read from disk; what is not whole is no copy any more, its blobs stay."""
        for left in (*self._ready.glob(".*"), *self._trees.glob(".*")):
            _remove(left)
        return [copy for marker in sorted(self._ready.iterdir()) if (copy := self._copy(marker)) is not None]

    def _copy(self, marker: Path) -> HeldCopy | None:
        try:
            manifest = decode(marker.read_bytes())
        except (OSError, ManifestError):
            marker.unlink(missing_ok=True)
            return None
        tree = self._tree(manifest.digest)
        if tree.name != marker.name or not _whole(tree, manifest):
            marker.unlink(missing_ok=True)
            return None
        return HeldCopy(manifest.digest, manifest.size_bytes, str(tree))

    def _tree(self, digest: str) -> Path:
        return self._trees / digest.removeprefix("sha256:")

    def _link(self, staging: Path, manifest: Manifest) -> None:
        for file in manifest.files:
            place = staging / file.path
            place.parent.mkdir(parents=True, exist_ok=True)
            os.link(self._blobs / blob_name(file), place)
        for folder in _folders(staging):
            _sync(folder)
            if folder != staging:  # a folder that is to be renamed must stay writable until it is
                folder.chmod(_FOLDER_MODE)

    def _linked(self, tree: Path, manifest: Manifest) -> bool:
        """Whether a tree (of a start that was killed) consists of the blobs that are there now."""
        return all(_same(tree / file.path, self._blobs / blob_name(file)) for file in manifest.files)


def _whole(tree: Path, manifest: Manifest) -> bool:
    return all(_size(tree / file.path) == file.size for file in manifest.files)


def _size(path: Path) -> int:
    """Of a regular file; -1 for everything else."""
    try:
        found = path.lstat()
    except OSError:
        return -1
    return found.st_size if stat.S_ISREG(found.st_mode) else -1


def _same(one: Path, other: Path) -> bool:
    try:
        return os.path.samestat(one.lstat(), other.lstat())
    except OSError:
        return False


def _folders(root: Path) -> Iterator[Path]:
    """Deepest first."""
    for folder, _, _ in os.walk(root, topdown=False):
        yield Path(folder)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        for folder, _, _ in os.walk(path):
            Path(folder).chmod(_OWN_FOLDER_MODE)
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
