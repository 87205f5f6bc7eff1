"""One node's vault against hubs that misbehave: what is published is what the manifest says, or nothing is."""

from __future__ import annotations

import asyncio
import hashlib
import os
import resource
import ssl
import subprocess
import threading
from pathlib import Path

import pytest

from services.modelstore.domain.reasons import DeliveryReason
from services.modelstore.drivers.disk import DiskVault
from services.modelstore.ports import DeliveryError
from shared.manifest import ManifestFile, build
from shared.queries import WantedFile, WantedModel
from tests.integration.modelstore import origin as tricks
from tests.integration.modelstore.conftest import content
from tests.integration.modelstore.origin import Origin
from tests.support.wait import eventually

SIZE = 1_000_000
CUT = 400_000
WEIGHTS = content("weights", SIZE)


class Node:
    """One store and what is asked of it."""

    def __init__(self, root: Path, stall: float = 2.0, keep_free: int = 0) -> None:
        self.root = root
        self.vault = DiskVault(root, concurrency=4, keep_free=keep_free, stall=stall)
        self.there = 0

    async def fetch(self, model: WantedModel) -> Path:
        def progress(there: int) -> None:
            self.there = there

        return Path((await self.vault.fetch(model, progress)).path)

    async def fails(self, model: WantedModel) -> DeliveryError:
        with pytest.raises(DeliveryError) as caught:
            await self.fetch(model)
        assert list((self.root / "ready").iterdir()) == []
        assert list((self.root / "trees").iterdir()) == []
        return caught.value

    def partials(self) -> dict[str, int]:
        return {p.name: p.stat().st_size for p in (self.root / "partial").iterdir() if p.suffix != ".json"}


@pytest.fixture
async def node(tmp_path):
    node = Node(tmp_path / "store")
    await node.vault.held()
    yield node
    os.close(node.vault._locked)


def model(origin: Origin, files: dict[str, bytes] | None = None, *, token: str = "", name: str = "o/n") -> WantedModel:
    files = {"w.bin": WEIGHTS} if files is None else files
    commit = origin.add(name, files)
    return wanted(origin.url, commit, files, token=token, name=name)


def wanted(url: str, commit: str, files: dict[str, bytes], *, token: str = "", name: str = "o/n") -> WantedModel:
    listed = [ManifestFile(p, len(c), "sha256", hashlib.sha256(c).hexdigest()) for p, c in files.items()]
    manifest = build(listed)
    return WantedModel(
        digest=manifest.digest, size_bytes=manifest.size_bytes, endpoint=url, repository=name, revision=commit,
        token=token, files=[WantedFile(path=f.path, size=f.size, algorithm=f.algorithm, hash=f.hash) for f in listed],
    )  # fmt: skip


async def test_a_file_is_asked_for_by_commit_and_lands_whole(node, origin):
    what = model(origin, {"w.bin": WEIGHTS, "a dir/ü #?%41.txt": b"odd name", "empty": b""})

    tree = await node.fetch(what)

    assert (tree / "w.bin").read_bytes() == WEIGHTS
    assert (tree / "a dir/ü #?%41.txt").read_bytes() == b"odd name"
    assert (tree / "empty").read_bytes() == b""
    assert all(what.revision in asked.path for asked in origin.asked)
    assert node.there == what.size_bytes
    assert list((node.root / "partial").iterdir()) == []


async def test_a_connection_reset_in_mid_body_goes_on_behind_the_last_byte(node, origin):
    what = model(origin)
    origin.will("o/n/w.bin", tricks.cut(CUT), tricks.cut(100_000))

    tree = await node.fetch(what)

    starts = [asked.start for asked in origin.files_asked("w.bin")]
    assert starts[:2] == [0, CUT]
    assert starts[2] == CUT + 100_000
    assert (tree / "w.bin").read_bytes() == WEIGHTS
    assert node.there == SIZE


async def test_a_later_start_goes_on_where_the_bytes_are(node, origin):
    what = model(origin)
    origin.will("o/n/w.bin", tricks.cut(CUT), tricks.status(403))
    assert (await node.fails(what)).reason is DeliveryReason.ACCESS_DENIED
    assert list(node.partials().values()) == [CUT]
    again = Node(node.root)

    await again.fetch(what)

    assert origin.files_asked("w.bin")[-1].start == CUT
    assert origin.files_asked("w.bin")[-1].headers["if-range"] == f'"{hashlib.sha256(WEIGHTS).hexdigest()}"'


async def test_a_hub_that_ignores_ranges_gives_the_right_file(node, origin):
    what = model(origin)
    origin.will("o/n/w.bin", tricks.cut(CUT), tricks.no_ranges)

    tree = await node.fetch(what)

    assert (tree / "w.bin").read_bytes() == WEIGHTS
    assert node.there == SIZE


async def test_an_error_page_in_place_of_the_rest_is_a_mismatch(node, origin):
    what = model(origin)
    origin.will("o/n/w.bin", tricks.cut(CUT), tricks.raw(b"x" * 635, "text/html"))

    error = await node.fails(what)

    assert error.reason is DeliveryReason.INTEGRITY_MISMATCH
    assert node.partials() == {}


@pytest.mark.parametrize("offset", [0, CUT, SIZE - 1])
async def test_a_corrupt_byte_discards_the_file(node, origin, offset):
    what = model(origin)
    origin.will("o/n/w.bin", tricks.flipped(offset))

    error = await node.fails(what)
    assert error.reason is DeliveryReason.INTEGRITY_MISMATCH
    assert "w.bin" in error.message
    assert node.partials() == {}

    tree = await node.fetch(what)
    assert (tree / "w.bin").read_bytes() == WEIGHTS


async def test_a_byte_that_changed_in_the_partial_file_is_found_and_all_is_fetched_anew(node, origin):
    what = model(origin)
    origin.will("o/n/w.bin", tricks.cut(CUT), tricks.status(403))
    await node.fails(what)
    name = next(iter(node.partials()))
    with (node.root / "partial" / name).open("r+b") as partial:
        partial.write(b"\x00\x01")

    tree = await Node(node.root).fetch(what)

    assert (tree / "w.bin").read_bytes() == WEIGHTS
    assert [asked.start for asked in origin.files_asked("w.bin")][-2:] == [CUT, 0]


@pytest.mark.parametrize(
    "trick",
    [
        tricks.says(SIZE - 1, WEIGHTS[:-1]),
        tricks.says(SIZE + 1, WEIGHTS + b"x"),
        tricks.says(0, b""),
        tricks.status(416),
    ],
    ids=["shorter", "longer", "empty", "no such range"],
)
async def test_a_file_of_another_length_is_a_mismatch(node, origin, trick):
    what = model(origin)
    origin.always("o/n/w.bin", trick)

    assert (await node.fails(what)).reason is DeliveryReason.INTEGRITY_MISMATCH


async def test_bodies_without_a_length_are_taken_in_pieces_and_resumed(node, origin):
    what = model(origin)
    origin.will("o/n/w.bin", tricks.chunked(20, cut_after=8), tricks.chunked(20, extra=b"too much"), tricks.plain)

    tree = await node.fetch(what)

    assert [asked.start for asked in origin.files_asked("w.bin")] == [0, CUT]
    assert (tree / "w.bin").read_bytes() == WEIGHTS


async def test_a_slow_drip_is_not_a_stall_and_silence_is(tmp_path, origin):
    node = Node(tmp_path / "store", stall=0.5)
    await node.vault.held()
    small = content("small", 3000)
    what = model(origin, {"w.bin": small})
    going, reached = threading.Event(), threading.Event()
    origin.will("o/n/w.bin", tricks.wait_after(1000, going, reached), tricks.drip(200, 0.1))

    tree = await node.fetch(what)

    going.set()
    assert [asked.start for asked in origin.files_asked("w.bin")] == [0, 1000]
    assert (tree / "w.bin").read_bytes() == small


@pytest.mark.parametrize("heeds", [True, False])
async def test_another_etag_between_attempts_never_mixes_two_files(node, origin, heeds):
    what = model(origin)
    stale = content("another version", SIZE)

    def begin_with_stale(call):
        call.begin(stale, 0, '"v1"')
        call.send(stale[:CUT])
        threading.Event().wait(0.2)
        call.reset()

    origin.will("o/n/w.bin", begin_with_stale, *[tricks.other_etag('"v2"', heeds_if_range=heeds)] * 2)

    tree = await node.fetch(what)

    assert (tree / "w.bin").read_bytes() == WEIGHTS
    assert origin.files_asked("w.bin")[1].headers["if-range"] == '"v1"'


@pytest.mark.parametrize(
    ("trick", "reason"),
    [
        (tricks.status(401), DeliveryReason.ACCESS_DENIED),
        (tricks.status(403), DeliveryReason.ACCESS_DENIED),
        (tricks.status(404, "RepoNotFound"), DeliveryReason.ACCESS_DENIED),
        (tricks.status(404, "GatedRepo"), DeliveryReason.ACCESS_DENIED),
        (tricks.status(404, "EntryNotFound"), DeliveryReason.SOURCE_UNAVAILABLE),
        (tricks.status(404, "RevisionNotFound"), DeliveryReason.SOURCE_UNAVAILABLE),
        (tricks.redirect("ftp://elsewhere/x"), DeliveryReason.INVALID_REQUEST),
        (tricks.redirect("http://[bad/x"), DeliveryReason.INVALID_REQUEST),
        (tricks.redirect("/o/n/resolve/again"), DeliveryReason.SOURCE_UNAVAILABLE),
        (tricks.raw(WEIGHTS, Content_Encoding="gzip"), DeliveryReason.SOURCE_UNAVAILABLE),
    ],
)
async def test_refusals_have_the_reasons_of_the_reference(node, origin, trick, reason):
    what = model(origin, token="hf_secret")
    origin.always("o/n/w.bin", trick)
    origin.always("o/n/", trick)

    error = await node.fails(what)

    assert error.reason is reason
    assert "hf_secret" not in error.message
    assert "Bearer" not in error.message


async def test_a_token_with_a_line_break_reaches_nobody(node, origin):
    what = model(origin, token="hf_x\r\nX-Evil: 1")

    assert (await node.fails(what)).reason is DeliveryReason.ACCESS_DENIED
    assert origin.asked == []


async def test_a_token_does_not_follow_a_redirect_to_another_host(node, origin):
    what = model(origin, token="hf_secret")
    other = Origin()
    other.add("cdn/x", {"w.bin": WEIGHTS})
    origin.will("o/n/w.bin", tricks.redirect(f"http://127.0.0.1:{other.port}/cdn/x/resolve/c/w.bin?sig=1"))

    tree = await node.fetch(what)
    other.close()

    assert origin.asked[0].headers["authorization"] == "Bearer hf_secret"
    assert [a.headers.get("authorization") for a in other.asked] == [None]
    assert (tree / "w.bin").read_bytes() == WEIGHTS


async def test_a_token_stays_on_its_host_and_does_not_come_back_after_a_detour(node, origin):
    what = model(origin, token="hf_secret")
    other = Origin()
    other.add("cdn/x", {"w.bin": WEIGHTS})
    back = f"{origin.url}/o/n/resolve/{what.revision}/w.bin"
    other.will("cdn/x/w.bin", tricks.redirect(back))
    origin.will(
        "o/n/w.bin",
        tricks.redirect(f"/o/n/resolve/{what.revision}/w.bin?again"),
        tricks.redirect(f"{other.url}/cdn/x/resolve/c/w.bin"),
    )

    await node.fetch(what)
    other.close()

    assert [a.headers.get("authorization") for a in origin.asked] == ["Bearer hf_secret", "Bearer hf_secret", None]


@pytest.fixture
def tls(tmp_path, monkeypatch):
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out", certificate],
        check=True, capture_output=True,
    )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    return context


async def test_a_hub_that_is_busy_is_asked_again_a_few_times(node, origin, tls, monkeypatch):
    """All wait at the same time: busy once, broken for good, nobody there, a certificate that nobody signed."""
    monkeypatch.delenv("SSL_CERT_FILE")
    secure = Origin(tls)
    whats = []
    once = {"o/a": tricks.status(429, Retry_After="1"), "o/b": tricks.status(503), "o/c": tricks.status(500)}
    for name, trick in once.items():
        whats.append(model(origin, {"w.bin": content(name, SIZE)}, name=name))
        origin.will(f"{name}/w.bin", trick)
    broken = model(origin, {"w.bin": content("d", 5000)}, name="o/d")
    origin.always("o/d/w.bin", tricks.status(500))
    absent = model(origin, {"w.bin": content("e", 5000)}, name="o/e").model_copy(update={"endpoint": "http://[::1]:9"})
    unsigned = model(secure, {"w.bin": content("f", 5000)}, name="o/f")

    found = await asyncio.gather(*map(node.fetch, [*whats, broken, absent, unsigned]), return_exceptions=True)
    secure.close()

    assert all((tree / "w.bin").stat().st_size == SIZE for tree in found[:3])
    assert [error.reason for error in found[3:]] == [DeliveryReason.SOURCE_UNAVAILABLE] * 3
    assert len([a for a in origin.files_asked("w.bin") if "/o/d/" in a.path]) == 5
    assert secure.asked == []


async def test_a_redirect_from_https_to_plain_http_is_refused(node, origin, tls):
    secure = Origin(tls)
    what = model(secure, token="hf_secret")
    origin.add("o/n", {"w.bin": WEIGHTS})
    secure.will("o/n/w.bin", tricks.redirect(f"{origin.url}/o/n/resolve/c/w.bin"))

    error = await node.fails(what)
    assert origin.asked == []
    assert error.reason is DeliveryReason.SOURCE_UNAVAILABLE

    secure.will("o/n/w.bin", tricks.redirect(f"/o/n/resolve/{what.revision}/w.bin"))
    await node.fetch(what)
    secure.close()
    assert {a.headers.get("authorization") for a in secure.asked} == {"Bearer hf_secret"}


async def test_a_file_of_two_manifests_is_fetched_and_stored_once(node, origin):
    shared = content("shared", SIZE)
    one = model(origin, {"w.bin": shared, "a": b"1"}, name="o/a")
    two = model(origin, {"w.bin": shared, "b": b"2"}, name="o/b")
    origin.will("o/a/w.bin", tricks.drip(100_000, 0.02))
    origin.will("o/b/w.bin", tricks.drip(100_000, 0.02))
    seen: dict[str, int] = {}

    trees = await asyncio.gather(
        *(node.vault.fetch(m, lambda there, d=m.digest: seen.update({d: there})) for m in (one, two))
    )

    assert len(origin.files_asked("w.bin")) == 1
    first, second = (Path(copy.path) / "w.bin" for copy in trees)
    assert first.samefile(second)
    assert node.vault.space()[1] == SIZE + 2
    assert seen == {one.digest: one.size_bytes, two.digest: two.size_bytes}


async def test_the_same_content_under_two_names_is_fetched_once(node, origin):
    tree = await node.fetch(model(origin, {"a.bin": WEIGHTS, "b.bin": WEIGHTS}))

    assert (tree / "a.bin").samefile(tree / "b.bin")
    assert len(origin.files_asked(".bin")) == 1


async def test_a_delivery_that_is_given_up_keeps_its_bytes_and_gives_its_room_back(node, origin):
    what = model(origin)
    going, reached = threading.Event(), threading.Event()
    origin.will("o/n/w.bin", tricks.wait_after(CUT, going, reached))
    task = asyncio.ensure_future(node.fetch(what))
    await eventually(lambda: node.there == CUT, timeout=20)

    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    going.set()

    assert list(node.partials().values()) == [CUT]
    assert node.vault._missing == {}
    await node.fetch(what)
    assert origin.files_asked("w.bin")[-1].start == CUT


@pytest.fixture
def tiny_disk(tmp_path):
    """A file system of 8 MiB; a limit on file sizes does the same where mounting is not allowed."""
    root = tmp_path / "tiny"
    root.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", root], capture_output=True, check=False)
    if mounted.returncode:
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (8 << 20, before[1]))
        yield root
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        return
    yield root
    subprocess.run(["umount", "--lazy", root], check=True)


async def test_two_downloads_that_each_fit_do_not_both_start(tiny_disk, origin):
    node = Node(tiny_disk)
    await node.vault.held()
    if node.vault.space()[0] > 9 << 20:  # no mount here: make the room as small by leaving the rest free
        os.close(node.vault._locked)
        node = Node(tiny_disk, keep_free=node.vault.space()[0] - (8 << 20))
        await node.vault.held()
    one, two = (model(origin, {"w.bin": content(n, 5 << 20)}, name=f"o/{n}") for n in ("a", "b"))
    going, reached = threading.Event(), threading.Event()
    origin.will("o/a/w.bin", tricks.wait_after(1 << 20, going, reached))
    first = asyncio.ensure_future(node.fetch(one))
    await eventually(reached.is_set, timeout=20)

    refused = await asyncio.gather(node.fetch(two), return_exceptions=True)
    going.set()
    await first
    os.close(node.vault._locked)

    assert refused[0].reason is DeliveryReason.INSUFFICIENT_CAPACITY
    assert [a for a in origin.files_asked("w.bin") if "/o/b/" in a.path] == []


async def test_a_disk_that_fills_up_meanwhile_is_said_and_the_bytes_stay(tiny_disk, origin):
    node = Node(tiny_disk)
    await node.vault.held()
    what = model(origin, {"w.bin": content("big", 6 << 20), "late.bin": content("late", 3 << 20)})
    # What the reservation believes is more than there is, as when somebody else fills the disk meanwhile.
    node.vault._reserve = lambda ticket, missing: node.vault._missing.update({ticket: missing})
    full = b"x" * (2 << 20)
    (tiny_disk / "other").write_bytes(full)

    error = await node.fails(what)

    assert error.reason is DeliveryReason.INSUFFICIENT_CAPACITY
    assert "full" in error.message
    (tiny_disk / "other").unlink()
    os.close(node.vault._locked)
