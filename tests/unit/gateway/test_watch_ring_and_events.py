"""Recent changes that watches resume from, and facts that become counted Events."""

from datetime import UTC, datetime, timedelta

import pytest

from services.gateway.domain.status import face_of
from services.gateway.store.events import KEPT, Events
from services.gateway.store.ring import Ring, Step
from shared.envelope import Envelope
from shared.errors import GpubusError
from shared.store.documents import Document


class Hands:
    """A clock that a test moves."""

    def __init__(self):
        self.at = datetime(2026, 1, 1, tzinfo=UTC)

    def now(self):
        return self.at

    def monotonic(self):
        return self.at.timestamp()


def step(revision):
    return Step(revision, "ADDED", Document("ConfigMap", "n", f"x{revision}", "u", revision, 1, {}))


def revisions(ring, since):
    return [found.revision for found in ring.after(since)]


async def test_ring_gives_what_came_after():
    ring = Ring(size=3)
    ring.reset(10)
    for revision in (11, 15, 20):
        ring.append(step(revision))

    assert revisions(ring, 10) == [11, 15, 20]
    assert revisions(ring, 12) == [15, 20]
    assert revisions(ring, 20) == []
    assert revisions(ring, 99) == []


async def test_ring_that_was_trimmed_says_too_old():
    ring = Ring(size=3)
    for revision in range(1, 8):
        ring.append(step(revision))

    assert revisions(ring, 3) == [4, 5, 6, 7]
    with pytest.raises(GpubusError) as caught:
        ring.after(2)
    assert face_of(caught.value).status == 410


async def test_reset_makes_every_older_position_too_old():
    ring = Ring()
    ring.append(step(5))
    before = ring.generation

    ring.reset(100)

    assert ring.generation == before + 1
    with pytest.raises(GpubusError):
        ring.after(5)
    assert revisions(ring, 100) == []


async def test_growth_wakes_who_waits():
    import asyncio

    ring = Ring()
    waiting = asyncio.ensure_future(ring.grown(5))
    await asyncio.sleep(0)

    ring.append(step(1))

    assert await waiting is True
    assert await ring.grown(0.01) is False


def fact(number, kind="replica.ready", moment=None, **data):
    body = {"namespace": "team", "name": "m-server-r0", "uid": "pod-uid", "deployment": "m", "node": "n1", **data}
    return Envelope(
        id=f"e.{number}",
        source="/services/deployer/1",
        type=f"gpubus.{kind}.v1",
        time=moment or datetime(2026, 1, 1, tzinfo=UTC),
        data=body,
    )


async def made():
    clock = Hands()
    return Events(clock, lambda kind, namespace, name: f"uid-of-{kind}-{name}"), clock


async def test_fact_is_news_of_its_object_and_of_its_owner():
    events, _ = await made()

    events.take(fact(1))

    found = {e.body["involvedObject"]["kind"]: e.body for e in events.list("team")}
    assert set(found) == {"Pod", "ModelDeployment"}
    assert found["Pod"]["involvedObject"]["uid"] == "pod-uid"
    assert found["ModelDeployment"]["involvedObject"]["uid"] == "uid-of-ModelDeployment-m"
    assert found["Pod"]["reason"] == "ReplicaReady"
    assert found["Pod"]["message"] == "m-server-r0 answers on n1"
    assert found["Pod"]["source"] == {"component": "deployer"}


async def test_repeated_news_is_counted_and_repeated_facts_are_not():
    events, _ = await made()

    events.take(fact(1))
    events.take(fact(1))
    events.take(fact(2))

    assert [e.body["count"] for e in events.list("team")] == [2, 2]
    assert [s.type for s in events.ring.after(events.ring.floor)] == ["ADDED", "ADDED", "MODIFIED", "MODIFIED"]


@pytest.mark.parametrize("kind", ["request.metered", "object-gateway.applied", "nonsense", "a.b.c.d", "unknown.thing"])
async def test_facts_that_are_no_news_leave_no_event(kind):
    events, _ = await made()

    events.take(fact(1, kind))

    assert events.list(None) == []


async def test_trouble_is_a_warning_and_says_why():
    events, _ = await made()

    events.take(fact(1, "replica.failed", exitCode=3, restarts=2, reason="CrashLoop"))
    events.take(
        fact(2, "workload.held", name="w", ownerKind="", deployment="", message="needs 2 cards; the largest node has 1")
    )

    first, second = (e.body for e in events.list("team") if e.body["involvedObject"]["kind"] in {"Pod", "Workload"})
    assert (first["type"], first["message"]) == (
        "Warning",
        "m-server-r0 ended with exit code 3; restarts: 2 (CrashLoop)",
    )
    assert (second["type"], second["message"]) == ("Warning", "needs 2 cards; the largest node has 1")


async def test_news_of_a_workload_is_news_of_what_it_is_for():
    events, _ = await made()

    events.take(
        fact(
            1,
            "workload.admitted",
            name="w",
            ownerKind="ModelDeployment",
            ownerName="m",
            ownerUid="d-uid",
            devices=["a", "b"],
        )
    )

    found = {e.body["involvedObject"]["kind"]: e.body["involvedObject"]["uid"] for e in events.list("team")}
    assert found == {"Workload": "pod-uid", "ModelDeployment": "d-uid"}
    assert events.list("team")[0].body["message"] == "w goes to n1 with 2 devices"


async def test_cluster_wide_news_lies_in_the_default_namespace():
    events, _ = await made()

    events.take(fact(1, "node.joined", name="n1", namespace=""))

    assert [e.namespace for e in events.list(None)] == ["default"]
    assert events.list("default")[0].body["involvedObject"] == {
        "apiVersion": "v1",
        "kind": "Node",
        "name": "n1",
        "uid": "pod-uid",
    }


async def test_events_are_forgotten_after_an_hour_whatever_the_senders_clock_says():
    events, clock = await made()
    events.take(fact(1, moment=datetime(2020, 1, 1, tzinfo=UTC)))
    assert len(events.list("team")) == 2

    clock.at += timedelta(minutes=61)

    assert events.list("team") == []
    assert [s.type for s in events.ring.after(events.ring.floor)][-2:] == ["DELETED", "DELETED"]


async def test_number_of_events_is_bounded_and_revisions_rise():
    events, _ = await made()

    for number in range(KEPT + 50):
        events.take(fact(number, "pod.started", name=f"p{number}"))

    assert len(events.list(None)) == KEPT
    found = [e.revision for e in events.list(None)]
    assert found == sorted(set(found))


@pytest.mark.parametrize(
    ("kind", "data", "said"),
    [
        ("pool.formed", {"entrance": "e", "nodes": 1, "devices": 4}, "entrance e, 1 node, 4 devices"),
        ("pool.resized", {"nodes": 2, "devices": 0}, "now 2 nodes"),
        ("workload.admitted", {"name": "w", "node": "n1", "devices": ["a"]}, "w goes to n1 with 1 device"),
        ("workload.admitted", {"name": "w", "node": "n1", "devices": []}, "w goes to n1"),
        ("workload.admitted", {"name": "w", "node": "n1"}, "w goes to n1"),
        (
            "capacity.freed",
            {"name": "p", "node": "", "reason": "CapacityAppeared"},
            "capacity freed (CapacityAppeared)",
        ),
        ("pod.failed", {"message": "exit code 3\nboom\n\nbang\n"}, "exit code 3 | boom | bang"),
        ("pod.ready", {"node": "n1"}, "is ready on n1"),
    ],
)
async def test_sentences_read_well_in_one_line(kind, data, said):
    events, _ = await made()
    sent = {"ownerKind": "", "deployment": "", **data}

    events.take(fact(1, kind, **sent))

    assert [event.body["message"] for event in events.list(None)] == [said]
