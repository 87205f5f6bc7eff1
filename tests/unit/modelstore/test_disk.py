"""Bytes on a node's disk: partial files that go on where they were, copies that appear whole or not at all."""

import errno
import hashlib
import os
import shutil
import threading

import pytest

from services.modelstore.domain.reasons import DeliveryReason
from services.modelstore.drivers.disk import DiskVault
from services.modelstore.drivers.partial import Cancelled, Partial, Writer, disk_error
from services.modelstore.drivers.trees import Trees, blob_name, checked
from services.modelstore.ports import DeliveryError
from shared.manifest import ManifestFile, build
from shared.queries import WantedFile, WantedModel

GO_ON = threading.Event()


def a_file(path, content, algorithm="sha256"):
    digest = hashlib.sha256(content) if algorithm == "sha256" else hashlib.sha1(b"blob %d\0" % len(content) + content)
    return WantedFile(path=path, size=len(content), algorithm=algorithm, hash=digest.hexdigest())


def a_model(*files, digest=""):
    manifest = build(ManifestFile(f.path, f.size, f.algorithm, f.hash) for f in files)
    return WantedModel(
        digest=digest or manifest.digest, size_bytes=manifest.size_bytes, endpoint="http://127.0.0.1:9",
        repository="o/n", revision="c" * 40, files=list(files),
    )  # fmt: skip


@pytest.fixture
def root(tmp_path):
    Trees(tmp_path).prepare()
    return tmp_path


def put(root, file, content):
    """A blob that an earlier start verified."""
    place = root / "blobs" / blob_name(file)
    place.write_bytes(content)
    return place


def a_vault(root, keep_free=0):
    return DiskVault(root, concurrency=2, keep_free=keep_free, stall=1)


def ignored(_):
    return None


@pytest.mark.parametrize("algorithm", ["sha256", "gitsha1"])
@pytest.mark.parametrize("size", [0, 1, 1 << 20, (1 << 20) + 1])
def test_a_partial_file_is_hashed_in_order_and_goes_on_after_a_restart(tmp_path, algorithm, size):
    content = os.urandom(size)
    file = a_file("w", content, algorithm)
    with Partial(tmp_path / "p", file, GO_ON) as partial:
        partial.append(memoryview(content)[: size // 2])

    with Partial(tmp_path / "p", file, GO_ON) as partial:
        assert partial.size == size // 2
        partial.append(memoryview(content)[size // 2 :])
        assert partial.right()
    assert (tmp_path / "p").read_bytes() == content


def test_a_byte_that_changed_on_disk_makes_the_whole_file_wrong(tmp_path):
    file = a_file("w", b"abcdef")
    (tmp_path / "p").write_bytes(b"aXc")
    with Partial(tmp_path / "p", file, GO_ON) as partial:
        partial.append(memoryview(b"def"))
        assert not partial.right()
        partial.restart()
        partial.append(memoryview(b"abcdef"))
        assert partial.right()


def test_a_partial_file_longer_than_the_file_begins_anew(tmp_path):
    (tmp_path / "p").write_bytes(b"too long")
    with Partial(tmp_path / "p", a_file("w", b"abc"), GO_ON) as partial:
        assert partial.size == 0
    assert (tmp_path / "p").read_bytes() == b""


def test_a_link_in_the_place_of_a_partial_file_is_not_followed(tmp_path):
    (tmp_path / "target").write_bytes(b"mine")
    (tmp_path / "p").symlink_to("target")
    with pytest.raises(OSError), Partial(tmp_path / "p", a_file("w", b"abc"), GO_ON):
        pass
    assert (tmp_path / "target").read_bytes() == b"mine"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"server": 1}', "null", "\x00"])
def test_a_torn_note_is_no_note(tmp_path, text):
    (tmp_path / "p.json").write_text(text)
    with Partial(tmp_path / "p", a_file("w", b"abc"), GO_ON) as partial:
        assert partial.came_with == ("", "")
        partial.note("http://hub:80", '"e"')
        assert partial.came_with == ("http://hub:80", '"e"')


def test_the_writing_thread_tells_that_the_disk_is_full(tmp_path):
    file = a_file("w", bytes(16 << 20))
    with Partial(tmp_path / "p", file, GO_ON) as partial:
        os.close(partial._descriptor)
        partial._descriptor = os.open("/dev/full", os.O_RDWR)
        writer = Writer(partial)
        with pytest.raises(DeliveryError) as caught:
            for _ in range(8):
                buffer = writer.buffer()
                writer.append(buffer, len(buffer))
            writer.close()
        with pytest.raises(DeliveryError):
            writer.close()
    assert caught.value.reason is DeliveryReason.INSUFFICIENT_CAPACITY
    assert "full" in caught.value.message


@pytest.mark.parametrize(("number", "word"), [(errno.ENOSPC, "full"), (errno.EFBIG, "full"), (errno.EIO, "failed")])
def test_errors_of_the_disk_are_sentences(number, word):
    assert word in disk_error(OSError(number, os.strerror(number))).message


def test_a_copy_is_whole_read_only_and_found_again(root):
    files = (a_file("config.json", b"{}", "gitsha1"), a_file("a/b/w", b"weights"), a_file("empty", b""))
    for file, content in zip(files, (b"{}", b"weights", b""), strict=True):
        put(root, file, content).chmod(0o444)
    copy = Trees(root).publish(a_model(*files))

    tree = root / "trees" / copy.digest.removeprefix("sha256:")
    assert (tree / "a/b/w").read_bytes() == b"weights"
    assert [held.digest for held in Trees(root).scan()] == [copy.digest]
    assert (tree / "a").stat().st_mode & 0o222 == tree.stat().st_mode & 0o222 == 0
    assert (tree / "a/b/w").stat().st_mode & 0o222 == 0
    assert (root / "ready" / tree.name).read_bytes() == checked(a_model(*files)).text


@pytest.mark.parametrize("harm", ["missing", "shorter", "link", "no marker", "torn marker", "other marker", "no tree"])
def test_a_copy_that_is_not_whole_is_not_held(root, harm):
    file = a_file("w", b"weights")
    put(root, file, b"weights")
    copy = Trees(root).publish(a_model(file))
    name = copy.digest.removeprefix("sha256:")
    tree, marker = root / "trees" / name, root / "ready" / name
    tree.chmod(0o755)
    if harm == "missing":
        (tree / "w").unlink()
    elif harm == "shorter":
        (tree / "w").write_bytes(b"weight")
    elif harm == "link":
        (tree / "w").unlink()
        (tree / "w").symlink_to("/etc/hostname")
    elif harm == "no marker":
        marker.unlink()
    elif harm == "torn marker":
        marker.write_bytes(marker.read_bytes()[:-3])
    elif harm == "other marker":
        marker.rename(marker.with_name("0" * 64))
    else:
        shutil.rmtree(tree)

    assert Trees(root).scan() == []
    assert list((root / "ready").iterdir()) == []


def test_leftovers_of_a_kill_while_publishing_are_cleaned_and_published_over(root):
    file = a_file("a/w", b"weights")
    put(root, file, b"weights")
    name = checked(a_model(file)).digest.removeprefix("sha256:")
    (root / "trees" / f".{name}" / "a").mkdir(parents=True)
    (root / "trees" / f".{name}" / "a").chmod(0o555)
    (root / "trees" / name / "a").mkdir(parents=True)
    (root / "ready" / f".{name}").write_bytes(b"half")
    trees = Trees(root)

    assert trees.scan() == []
    trees.publish(a_model(file))

    assert len(trees.scan()) == 1
    assert (root / "trees" / name / "a/w").read_bytes() == b"weights"
    assert [path.name for path in (root / "trees").iterdir()] == [name]


@pytest.mark.parametrize("digest", [f"sha256:{'0' * 64}", "sha256:../../x", "sha256-../../x", ""])
def test_a_model_whose_files_are_not_those_of_its_digest_is_refused(digest):
    other = a_model(a_file("w", b"weights")).model_copy(update={"digest": digest})
    with pytest.raises(DeliveryError) as caught:
        checked(other)
    assert caught.value.reason is DeliveryReason.INVALID_REQUEST


@pytest.mark.parametrize("path", ["../../x", "/tmp/x", "a/../../x", "a\x00b"])
async def test_a_wanted_path_that_leaves_the_store_makes_nothing(root, path):
    file = a_file("w", b"weights").model_copy(update={"path": path})
    model = a_model(a_file("w", b"weights")).model_copy(update={"files": [file]})
    before = sorted(root.parent.rglob("*"))

    with pytest.raises(DeliveryError) as caught:
        await a_vault(root).fetch(model, ignored)

    assert caught.value.reason is DeliveryReason.INVALID_REQUEST
    assert sorted(root.parent.rglob("*")) == before


async def test_what_is_there_is_published_without_asking_anybody(root):
    file = a_file("w", b"weights")
    put(root, file, b"weights")
    seen = []

    copy = await a_vault(root).fetch(a_model(file), seen.append)

    assert copy.size_bytes == 7
    assert seen[-1] == 7


async def test_a_byte_that_changed_on_disk_before_publishing_is_found(root):
    """The source cannot be asked, so the only way to be Ready would be to believe the disk."""
    file = a_file("w", b"weights")
    blob = put(root, file, b"wexghts")
    vault = a_vault(root)

    with pytest.raises(DeliveryError) as caught:
        await vault.fetch(a_model(file).model_copy(update={"endpoint": "nowhere://x"}), ignored)

    assert caught.value.reason is DeliveryReason.INVALID_REQUEST
    assert not blob.exists()
    assert await vault.held() == []


def test_hashing_what_is_there_ends_when_it_is_told_to(root):
    file = a_file("w", b"weights")
    put(root, file, b"weights")
    (root / "partial" / blob_name(file)).write_bytes(b"wei")
    stop = threading.Event()
    stop.set()

    with pytest.raises(Cancelled):
        Trees(root).has(blob_name(file), file, stop)
    with pytest.raises(Cancelled), Partial(root / "partial" / blob_name(file), file, stop):
        pass
    assert (root / "blobs" / blob_name(file)).read_bytes() == b"weights"


async def test_a_tree_of_a_killed_start_with_bytes_that_changed_is_not_used(root):
    file = a_file("w", b"weights")
    put(root, file, b"weights")
    name = Trees(root).publish(a_model(file)).digest.removeprefix("sha256:")
    (root / "ready" / name).unlink()
    blob = root / "blobs" / blob_name(file)
    blob.write_bytes(b"wexghts")  # the same inode as in the tree
    blob.unlink()
    put(root, file, b"weights")

    copy = await a_vault(root).fetch(a_model(file), ignored)

    assert (root / "trees" / name / "w").read_bytes() == b"weights"
    assert copy.path == str(root / "trees" / name)


async def test_more_than_the_disk_has_is_refused_before_the_first_byte(root):
    free = shutil.disk_usage(root).free
    file = a_file("w", b"").model_copy(update={"size": 1 << 30})
    vault = a_vault(root, keep_free=max(0, free - (64 << 20)))

    with pytest.raises(DeliveryError) as caught:
        await vault.fetch(a_model(file), ignored)

    assert caught.value.reason is DeliveryReason.INSUFFICIENT_CAPACITY
    assert list((root / "partial").iterdir()) == []


async def test_one_process_at_a_time_works_in_a_store(root):
    first, second = a_vault(root), a_vault(root)
    await first.held()

    assert not second._lock()
    os.close(first._locked)
    assert second._lock()


async def test_a_simulated_model_is_no_copy_on_a_real_node(root):
    model = a_model(a_file("w", b"weights")).model_copy(update={"simulated": True, "endpoint": "simulated:"})
    with pytest.raises(DeliveryError) as caught:
        await a_vault(root).fetch(model, ignored)
    assert caught.value.reason is DeliveryReason.INVALID_REQUEST
