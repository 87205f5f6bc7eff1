"""The workers' tables: built from documents, encoded, looked up, framed, taken and replaced as a whole."""

import asyncio
import os
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import pytest

from services.gateway.dataplane.access import Access
from services.gateway.dataplane.feed import Feed
from services.gateway.dataplane.meter import Meter
from services.gateway.domain import tables
from services.gateway.domain.auth import token_hash
from services.gateway.domain.streaming import Usage
from services.gateway.domain.tables import ADMIN, Endpoint, Index, Key, Model, Tables
from services.gateway.projections.endpoints import build
from services.gateway.projections.line import frame, read_frame
from shared.errors import Unauthenticated, Unavailable
from shared.store.documents import Document

SECRET = b"k" * 32
TOKEN = "gb_0123456789abcdef0123456789abcdef"
MODEL = Model("default", "tiny", 5, (Endpoint("127.0.0.1", 8000, "/x", "t", "r"),))
KEY = Key(token_hash(SECRET, TOKEN), "uid-1", "default", "model-user")
TABLES = Tables((MODEL,), (KEY,))


class StillClock:
    """Moves when told."""

    def __init__(self):
        self.seconds = 1000.0

    def now(self):
        return datetime.fromtimestamp(1_800_000_000 + self.seconds, UTC)

    def monotonic(self):
        return self.seconds


class Shelf:
    """Documents by kind."""

    def __init__(self, *documents):
        self._documents = documents

    def list(self, kind, namespace=None):
        return [d for d in self._documents if d.kind == kind and namespace in {None, d.namespace}]


def document(kind, name, *, namespace="default", labels=None, deleted=False, **body):
    metadata = {"name": name, "labels": labels or {}, "creationTimestamp": "2026-01-02T03:04:05Z"}
    if deleted:
        metadata["deletionTimestamp"] = "2026-01-02T03:04:06Z"
    return Document(kind, namespace, name, f"uid-{name}", 1, 1, {"metadata": metadata, **body})


def deployment(name, model="tiny", **more):
    return document("ModelDeployment", name, spec={"model": {"name": model}}, **more)


def pod(name, owner, port=8000, *, ready="True", **more):
    status = {
        "conditions": [{"type": "Ready", "status": ready}],
        "endpoint": {"address": "10.0.0.1", "port": port, "token": f"t-{name}"},
    }
    return document("Pod", name, labels={"worker.gpustack.ai/deployment": owner}, status=status, **more)


def test_encoding_is_reversible_and_rejects_anything_else():
    assert tables.decode(tables.encode(TABLES)) == TABLES
    for wrong in (b"", b"\xc1", tables.encode(TABLES)[:-1], b"not tables", b"\x93\x01\x02\x03"):
        with pytest.raises(ValueError, match=r".+"):
            tables.decode(wrong)


def test_index_finds_keys_by_hash_and_the_administrator_by_his():
    index = Index(TABLES, "admin-hash")

    assert index.keys[KEY.hash] is KEY
    assert index.keys["admin-hash"] is ADMIN
    assert "" not in Index(TABLES).keys


def test_only_ready_pods_of_a_deployment_that_stay_are_endpoints():
    from shared.resources.deployment import LABEL_DEPLOYMENT

    def labelled(document):
        document.body["metadata"]["labels"] = {LABEL_DEPLOYMENT: "d"}
        return document

    bare = pod("bare", "d", 5)
    bare.body["metadata"]["labels"] = {}
    no_endpoint = labelled(pod("n", "d"))
    del no_endpoint.body["status"]["endpoint"]
    built = build(
        Shelf(
            deployment("d"),
            labelled(pod("b", "d", 2)),
            labelled(pod("a", "d", 1)),
            labelled(pod("starting", "d", 3, ready="False")),
            labelled(pod("going", "d", 4, deleted=True)),
            labelled(pod("elsewhere", "d", 6, namespace="other")),
            no_endpoint,
            bare,
        )
    )

    (model,) = built.models
    assert [(e.host, e.port, e.token) for e in model.endpoints] == [("10.0.0.1", 1, "t-a"), ("10.0.0.1", 2, "t-b")]
    assert model.created == 1767323045
    assert model.waiting == ""


def test_a_deployment_without_endpoints_says_why():
    held = deployment("d", status={"conditions": [{"type": "QuotaReserved", "status": "False", "message": "no card"}]})

    assert build(Shelf(held)).models[0].waiting == "no card"
    assert build(Shelf(deployment("d"))).models[0].waiting == "its replicas are starting"


def test_two_deployments_of_one_name_serve_it_together():
    from shared.resources.deployment import LABEL_DEPLOYMENT

    pods = [pod("a", "one", 1), pod("b", "two", 2)]
    for one, owner in zip(pods, ("one", "two"), strict=True):
        one.body["metadata"]["labels"] = {LABEL_DEPLOYMENT: owner}

    (model,) = build(Shelf(deployment("one"), deployment("two"), *pods)).models

    assert [endpoint.port for endpoint in model.endpoints] == [1, 2]


@pytest.mark.parametrize(
    ("spec", "known"),
    [
        ({"hash": "h"}, True),
        ({"hash": "h", "expires": "2030-01-01T00:00:00Z"}, True),
        ({"hash": "h", "disabled": True}, False),
        ({}, False),
        ({"hash": ""}, False),
    ],
)
def test_only_keys_that_may_open_something_are_told(spec, known):
    assert bool(build(Shelf(document("ApiKey", "k", spec=spec))).keys) is known


def test_a_deleted_key_is_not_told():
    assert build(Shelf(document("ApiKey", "k", spec={"hash": "h"}, deleted=True))).keys == ()


def test_an_unreadable_expiry_is_long_ago_and_none_is_never():
    expiries = ["soon", None, "2030-01-01T00:00:00", "2030-01-01T00:00:00+00:00"]

    built = build(
        Shelf(*(document("ApiKey", f"k{n}", spec={"hash": "h", "expires": e}) for n, e in enumerate(expiries)))
    )

    assert [key.expires for key in built.keys] == [1.0, 0.0, 1893456000.0, 1893456000.0]


async def test_frames_come_out_as_they_went_in_whatever_the_cuts():
    reader = asyncio.StreamReader()
    raw = frame("tables", b"\x00\x01") + frame("ack", "boot", 7) + frame("fresh")
    for at in range(len(raw)):
        reader.feed_data(raw[at : at + 1])

    assert await read_frame(reader) == ["tables", b"\x00\x01"]
    assert await read_frame(reader) == ["ack", "boot", 7]
    assert await read_frame(reader) == ["fresh"]


@pytest.mark.parametrize("wrong", [b"", b"\x00\x00\x00\x05ab", b"\xff\xff\xff\xff", b"\x00\x00\x00\x01\xc1"])
async def test_a_cut_or_senseless_frame_ends_the_line(wrong):
    reader = asyncio.StreamReader()
    reader.feed_data(wrong)
    reader.feed_eof()

    with pytest.raises(ConnectionError):
        await read_frame(reader)


class Line:
    """A feed on a socket that the test answers."""

    def __init__(self, folder: Path) -> None:
        self.clock = StillClock()
        self.meter = Meter(folder / "usage.spool", self.clock)
        self.snapshot = folder / "tables.snapshot"
        self.socket = folder / "feed.sock"
        self.feed = Feed(
            socket=self.socket,
            snapshot=self.snapshot,
            admin_hash="",
            meter=self.meter,
            name="w0",
            clock=self.clock,
        )

    def keep(self, content, age=0.0):
        """A snapshot on disk."""
        self.snapshot.write_bytes(content)
        moment = self.clock.now().timestamp() - age
        os.utime(self.snapshot, (moment, moment))

    def access(self, max_stale=600.0):
        return Access(self.feed, SECRET, self.clock, max_stale)


@pytest.fixture
def line():
    with tempfile.TemporaryDirectory(prefix="gpubus-dp-") as folder:
        yield Line(Path(folder))


BEARER = [(b"authorization", f"Bearer {TOKEN}".encode())]


def test_a_worker_without_tables_knows_that_it_does_not_know(line):
    with pytest.raises(Unavailable):
        line.access().key(BEARER)
    with pytest.raises(Unauthenticated):
        line.access().key([])


@pytest.mark.parametrize("content", [None, b"", b"broken", b"\x92\x90"])
def test_a_missing_or_broken_snapshot_is_no_snapshot(line, content):
    if content is not None:
        line.keep(content)

    line.feed.load_snapshot()

    assert not line.feed.loaded


def test_the_snapshot_serves_until_it_is_too_old(line):
    line.keep(tables.encode(TABLES))
    line.feed.load_snapshot()

    assert line.access().key(BEARER) == KEY
    line.clock.seconds += 599
    assert line.access().key(BEARER) == KEY
    line.clock.seconds += 2
    with pytest.raises(Unavailable, match="cannot be confirmed"):
        line.access().key(BEARER)


def test_a_restart_does_not_make_an_old_snapshot_young(line):
    line.keep(tables.encode(TABLES), age=598)
    line.feed.load_snapshot()

    assert line.access().key(BEARER) == KEY
    line.clock.seconds += 3
    with pytest.raises(Unavailable, match="cannot be confirmed"):
        line.access().key(BEARER)


def test_a_snapshot_from_the_future_is_not_younger_than_now(line):
    line.keep(tables.encode(TABLES), age=-3600)
    line.feed.load_snapshot()

    assert line.feed.stale_seconds == 0


def test_without_patience_nothing_is_served_from_a_snapshot(line):
    line.keep(tables.encode(TABLES))
    line.feed.load_snapshot()
    line.clock.seconds += 0.001

    with pytest.raises(Unavailable):
        line.access(max_stale=0.0).key(BEARER)


def test_an_expired_key_is_refused_though_it_is_remembered(line):
    until = line.clock.now().timestamp() + 10
    line.keep(tables.encode(Tables((MODEL,), (Key(KEY.hash, "u", "default", "viewer", (), until),))))
    line.feed.load_snapshot()
    access = line.access()

    assert access.key(BEARER).uid == "u"
    line.clock.seconds += 10
    with pytest.raises(Unauthenticated, match="expired"):
        access.key(BEARER)


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [(b"authorization", b"Bearer ")],
        [(b"authorization", b"Basic dTpw")],
        [(b"authorization", b"Bearer gb_ffffffffffffffffffffffffffffffff")],
        [(b"x-api-key", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff")],
        [*BEARER, (b"x-api-key", b"gb_ffffffffffffffffffffffffffffffff")],
        [*BEARER, (b"authorization", b"Bearer gb_ffffffffffffffffffffffffffffffff")],
    ],
)
def test_no_or_another_key_opens_nothing_and_is_not_echoed(line, headers):
    line.keep(tables.encode(TABLES))
    line.feed.load_snapshot()
    access = line.access()
    access.key(BEARER)

    with pytest.raises(Unauthenticated) as caught:
        access.key(headers)

    assert "ffff" not in str(caught.value)


async def talk(line, steps):
    """Run the feed against a server that goes through `steps`, one a connection."""
    done = asyncio.Event()
    queue = list(steps)

    async def answer(reader, writer):
        await queue.pop(0)(reader, writer)
        writer.close()
        if not queue:
            done.set()

    server = await asyncio.start_unix_server(answer, str(line.socket))
    running = asyncio.ensure_future(line.feed.run())
    try:
        await asyncio.wait_for(done.wait(), 20)
    finally:
        running.cancel()
        server.close()


async def settled(check):
    for _ in range(1000):
        if check():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("not reached")


async def test_each_table_replaces_the_whole_and_a_lost_one_is_made_good_by_the_next(line):
    access = line.access()

    async def first(_, writer):
        writer.write(frame("tables", tables.encode(TABLES)) + frame("fresh"))
        await settled(lambda: line.feed.loaded)
        assert access.key(BEARER) == KEY
        writer.write(frame("tables", tables.encode(Tables((MODEL,), ()))))
        await settled(lambda: not line.feed.index.keys)
        with pytest.raises(Unauthenticated):
            access.key(BEARER)

    async def second(_, writer):
        writer.write(frame("tables", tables.encode(TABLES)))
        await settled(lambda: line.feed.index.keys)
        assert access.key(BEARER) == KEY

    await talk(line, [first, second])


@pytest.mark.parametrize(
    "noise",
    [b"\x00\x00\x00\x02\x91\xc0", frame("tables", b"broken"), frame("tables"), frame("ack"), b"GET / HTTP/1.1\r\n"],
)
async def test_what_it_does_not_understand_costs_the_line_not_the_tables(line, noise):
    line.keep(tables.encode(TABLES))
    line.feed.load_snapshot()

    async def strange(_, writer):
        writer.write(noise)
        await writer.drain()

    async def sane(_, writer):
        assert line.feed.index.tables == TABLES
        writer.write(frame("tables", tables.encode(Tables())))
        await settled(lambda: not line.feed.index.keys)

    await talk(line, [strange, sane])


async def test_a_silent_line_makes_tables_old_though_it_is_open(line):
    async def step(_, writer):
        writer.write(frame("tables", tables.encode(TABLES)) + frame("fresh"))
        await settled(lambda: line.feed.connected)
        line.clock.seconds += 3
        assert line.feed.stale_seconds == 0
        line.clock.seconds += 3
        assert line.feed.stale_seconds == 6
        writer.write(frame("fresh"))
        await settled(lambda: line.feed.stale_seconds == 0)

    await talk(line, [step])


async def test_usage_is_sent_until_it_is_acknowledged(line):
    line.meter.add(KEY, MODEL, "ok", Usage(11, 4, 7), 0.5)
    seen = []

    async def told(reader, kind):
        while (message := await read_frame(reader))[0] != kind:
            pass
        return message[1:]

    async def deaf(reader, _):
        seen.append(await told(reader, "usage"))

    async def kind(reader, writer):
        seen.append(await told(reader, "usage"))
        writer.write(frame("ack", *seen[-1][:2]))
        await settled(lambda: not line.meter.waiting)

    await talk(line, [deaf, kind])
    assert seen[0] == seen[1]
    boot, number, rows = seen[0]
    assert (boot, number) == (line.meter.boot, 1)
    assert [row[:3] + row[4:] for row in rows] == [["uid-1", "default", "tiny", "ok", 1, 11, 4, 7, 500]]
