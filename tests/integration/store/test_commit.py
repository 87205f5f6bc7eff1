"""What one commit does, and what it refuses."""

from __future__ import annotations

import pytest

from shared.errors import (
    AlreadyExists,
    DeadlineExceeded,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    Raced,
    ResourceExhausted,
    TooLarge,
    Unavailable,
)
from shared.resources.core import Namespace
from shared.store import keys
from shared.store.client import Store
from shared.store.documents import (
    ANY,
    About,
    Assign,
    Commit,
    Counter,
    Delete,
    InboxMark,
    LeaseLost,
    Put,
    Require,
    StaleEpoch,
)
from shared.store.outbox import Outbox
from shared.telemetry.tracing import Cause, caused_by
from tests.integration.store.bodies import body, fact, new

NODE = keys.ledger("node-1")


async def test_each_document_takes_its_own_rising_revision(store: Store) -> None:
    first = await store.commit(Commit(puts=[new("a"), new("b")]))
    second = await store.commit(
        Commit(puts=[new("c")], deletes=[Delete("Workload", "default", "a", first.revisions[0])])
    )

    assert len({*first.revisions, *second.revisions}) == 4
    assert list(first.revisions + second.revisions) == sorted(first.revisions + second.revisions)


async def test_a_new_document_gets_identity_and_no_revision_in_its_body(store: Store) -> None:
    done = await store.commit(Commit(puts=[Put("Node", "", "n1", {"metadata": {"resourceVersion": "7"}}, None)]))

    found = await store.get("Node", "", "n1")
    assert found is not None
    assert found.revision == done.revisions[0]
    assert found.uid == found.body["metadata"]["uid"]
    assert found.body["metadata"]["generation"] == 1
    assert "resourceVersion" not in found.body["metadata"]
    assert found.json()["metadata"]["resourceVersion"] == str(found.revision)


async def test_a_snapshot_holds_the_asked_kinds_in_order(store: Store) -> None:
    await store.commit(Commit(puts=[new("b"), new("a"), new("z", "alpha"), Put("Node", "", "n", body(), None)]))

    taken = await store.snapshot(["Workload", "Node", "Pod"])

    assert [d.key for d in taken.documents] == [
        ("Workload", "alpha", "z"),
        ("Workload", "default", "a"),
        ("Workload", "default", "b"),
        ("Node", "", "n"),
    ]
    assert taken.epoch == store.epoch
    assert taken.revision >= max(d.revision for d in taken.documents)


async def test_a_stale_revision_loses_and_names_the_document(store: Store) -> None:
    done = await store.commit(Commit(puts=[new("a")]))
    await store.commit(Commit(puts=[Put("Workload", "default", "a", body("u"), done.revisions[0])]))

    with pytest.raises(Raced) as lost:
        await store.commit(Commit(puts=[new("b"), Put("Workload", "default", "a", body("u"), done.revisions[0])]))

    assert lost.value.fields["key"] == keys.doc("Workload", "default", "a")
    assert await store.get("Workload", "default", "b") is None


async def test_creating_twice_already_exists(store: Store) -> None:
    await store.commit(Commit(puts=[new("a")]))

    with pytest.raises(AlreadyExists):
        await store.commit(Commit(puts=[new("a")]))


async def test_deleting_what_is_not_there_is_not_found(store: Store) -> None:
    with pytest.raises(NotFound):
        await store.commit(Commit(deletes=[Delete("Workload", "default", "a", ANY)]))
    with pytest.raises(Raced):
        await store.commit(Commit(deletes=[Delete("Workload", "default", "a", 7)]))


async def test_a_deleted_document_leaves_reads_and_index(store: Store) -> None:
    await store.commit(Commit(puts=[new("a"), new("b")]))
    await store.commit(Commit(deletes=[Delete("Workload", "default", "a")]))

    assert await store.get("Workload", "default", "a") is None
    assert [d.name for d in (await store.snapshot(["Workload"])).documents] == ["b"]


async def test_counters_add_up_and_hold_their_bounds(store: Store) -> None:
    await store.commit(
        Commit(counters=[Counter(NODE, "cpu", 600, ceiling=1000), Counter(NODE, "cpu", 300, ceiling=1000)])
    )

    with pytest.raises(Raced) as over:
        await store.commit(Commit(counters=[Counter(NODE, "cpu", 101, ceiling=1000)]))
    with pytest.raises(Raced):
        await store.commit(Commit(counters=[Counter(NODE, "cpu", -901)]))

    assert over.value.fields["field"] == "cpu"
    assert over.value.fields["value"] == "900"
    assert await store.read_hash(NODE) == {"cpu": "900"}


async def test_two_admissions_race_for_one_card_and_one_wins(store: Store, server, connect) -> None:
    other = await connect(server, instance="two")
    card = Counter(NODE, "gpu-0", 1_600_000, ceiling=1_600_000)

    await store.commit(Commit(puts=[new("a")], counters=[card]))
    with pytest.raises(Raced):
        await other.commit(Commit(puts=[new("b")], counters=[card]))

    assert await other.get("Workload", "default", "b") is None
    assert await store.read_hash(NODE) == {"gpu-0": "1600000"}


@pytest.mark.parametrize("value", ["abc", "1.5", "", "9007199254740993", "1e3"])
async def test_a_counter_on_something_else_is_refused(store: Store, server, value: str) -> None:
    server.ask("HSET", NODE, "cpu", value)

    with pytest.raises((FailedPrecondition, Raced)):
        await store.commit(Commit(puts=[new("a")], counters=[Counter(NODE, "cpu", 1)]))

    assert await store.get("Workload", "default", "a") is None


async def test_assigning_needs_something_that_orders_it(store: Store) -> None:
    with pytest.raises(InvalidArgument):
        await store.commit(Commit(assigns=[Assign(NODE, "epoch", store.epoch)]))

    await store.commit(
        Commit(assigns=[Assign(NODE, "epoch", store.epoch)], requires=[Require.equals(NODE, "epoch", None)])
    )
    assert await store.read_hash(NODE) == {"epoch": store.epoch}

    lease = store.lease("cycle")
    assert await lease.acquire()
    await store.commit(Commit(assigns=[Assign(NODE, "epoch", None)], lease=lease))
    assert await store.read_hash(NODE) == {}


async def test_requirements_hold_the_whole_commit(store: Store) -> None:
    done = await store.commit(Commit(puts=[new("a")]))
    good = [Require.exists("Workload", "default", "a"), Require.revision("Workload", "default", "a", done.revisions[0])]
    await store.commit(Commit(puts=[new("b")], requires=good))

    with pytest.raises(NotFound):
        await store.commit(Commit(puts=[new("c")], requires=[Require.exists("Namespace", "", "x")]))
    with pytest.raises(Raced):
        await store.commit(Commit(puts=[new("c")], requires=[Require.revision("Workload", "default", "a", 1)]))
    with pytest.raises(Raced):
        await store.commit(Commit(puts=[new("c")], requires=[Require.equals(NODE, "epoch", store.epoch)]))
    assert await store.get("Workload", "default", "c") is None


async def test_a_passed_deadline_writes_nothing(store: Store) -> None:
    now = await store.time_us()

    with pytest.raises(DeadlineExceeded):
        await store.commit(Commit(puts=[new("a")], deadline_us=now - 1))
    await store.commit(Commit(puts=[new("b")], deadline_us=now + 60_000_000))

    assert await store.get("Workload", "default", "a") is None
    assert await store.get("Workload", "default", "b") is not None


async def test_a_decision_of_another_epoch_is_refused(store: Store) -> None:
    with pytest.raises(StaleEpoch):
        await store.commit(Commit(puts=[new("a")], epoch="1-old"))


async def test_a_commit_under_a_lease_that_is_gone_is_refused(store: Store, server, connect) -> None:
    other = await connect(server, instance="two")
    lease, later = store.lease("cycle"), other.lease("cycle")
    assert await lease.acquire()
    await store.commit(Commit(puts=[new("a")], lease=lease))
    fencing = lease.fencing
    await lease.release()
    assert await later.acquire()
    lease.fencing = fencing

    with pytest.raises(LeaseLost):
        await store.commit(Commit(puts=[new("b")], lease=lease))


async def test_a_repeat_of_a_marked_message_gets_the_first_answer(store: Store) -> None:
    first = await store.commit(Commit(puts=[new("a")], mark=InboxMark("submit_workload", "m-1", {"ok": True})))
    again = await store.commit(Commit(puts=[new("b")], mark=InboxMark("submit_workload", "m-1", {"ok": False})))
    other = await store.commit(Commit(puts=[new("c")], mark=InboxMark("other", "m-1")))

    assert again.duplicate
    assert again.answer == {"ok": True}
    assert again.revisions == first.revisions
    assert not other.duplicate
    assert await store.get("Workload", "default", "b") is None
    assert await store.inbox_answer("submit_workload", "m-1") == {"ok": True}
    assert await store.inbox_answer("other", "m-1") == {}
    assert await store.inbox_answer("other", "m-2") is None


async def test_inboxes_expire(store: Store, server) -> None:
    await store.commit(Commit(mark=InboxMark("h", "m-1")))
    bucket = await store.time_us() // 300_000_000

    left = int(server.ask("TTL", f"{keys.inbox_prefix('scheduler', 'h')}{bucket}")[1:])

    assert 890 <= left <= 900


async def test_facts_and_commands_go_to_the_outbox_with_their_cause(store: Store) -> None:
    with caused_by(Cause("operation-1", "message-1", "00-" + "a" * 32 + "-" + "b" * 16 + "-01")):
        done = await store.commit(Commit(puts=[new("a"), new("b")], facts=[About(fact("a"), 0), fact("b")]))

    first, second = await Outbox(store).read("0-0", 10, 0)
    assert (first.revision, second.revision) == done.revisions
    assert first.subject == "gpubus.evt.object-scheduler.applied.v1.default.workload-a"
    assert first.type == "gpubus.object-scheduler.applied.v1"
    assert (first.correlation, first.causation) == ("operation-1", "message-1")
    assert first.epoch == store.epoch
    assert first.id < second.id
    assert first.message_id == f"{store.epoch}.{first.id}"


async def test_a_commit_of_facts_alone_takes_a_revision(store: Store) -> None:
    before = store.seen
    done = await store.commit(Commit(facts=[fact("a")]))

    assert done.revisions[0] > before


async def test_the_outbox_limit_leaves_a_fifth_for_releases(server, connect) -> None:
    store = await connect(server, outbox_limit=5000)
    written = 0
    with pytest.raises(ResourceExhausted) as full:
        for number in range(100):
            await store.commit(Commit(puts=[new(f"w-{number}")], facts=[fact(f"w-{number}")]))
            written += 1

    assert full.value.retry_after == 1.0
    assert await store.get("Workload", "default", f"w-{written}") is None
    await store.commit(Commit(puts=[new("quiet")]))
    await store.commit(Commit(deletes=[Delete("Workload", "default", "w-0")], facts=[fact("w-0")], release=True))
    with pytest.raises(ResourceExhausted):
        for _ in range(100):
            await store.commit(Commit(facts=[fact("x")], release=True))


async def test_a_newer_schema_is_not_overwritten(store: Store, server) -> None:
    done = await store.commit(Commit(puts=[new("a")]))
    server.ask("HSET", keys.doc("Workload", "default", "a"), "schema", "99")

    with pytest.raises(FailedPrecondition):
        await store.commit(Commit(puts=[Put("Workload", "default", "a", body("u"), done.revisions[0])]))


async def test_two_hundred_documents_are_one_commit_and_more_are_refused(store: Store) -> None:
    done = await store.commit(Commit(puts=[new(f"w-{number}") for number in range(200)]))
    assert len(done.revisions) == 200

    with pytest.raises(InvalidArgument):
        await store.commit(Commit(puts=[new(f"x-{number}") for number in range(201)]))


async def test_bodies_and_messages_have_limits(store: Store) -> None:
    with pytest.raises(TooLarge):
        await store.commit(Commit(puts=[new("a", text="x" * 3 * 1024 * 1024)]))
    with pytest.raises(TooLarge):
        await store.commit(Commit(facts=[fact("x" * 300_000)]))


async def test_a_document_twice_in_one_commit_is_refused(store: Store) -> None:
    with pytest.raises(InvalidArgument):
        await store.commit(Commit(puts=[new("a"), new("a")]))
    assert await store.get("Workload", "default", "a") is None


async def test_an_unusual_name_is_only_data(store: Store) -> None:
    name = "a/b:c}{*?\n\u00e9"
    await store.commit(Commit(puts=[Put("Workload", "n:s", name, body(text='"\\\u0000'), None)]))

    found = (await store.snapshot(["Workload"])).documents
    assert [(d.namespace, d.name) for d in found] == [("n:s", name)]
    assert found[0].body["spec"]["text"] == '"\\\u0000'


async def test_blobs_are_kept_as_they_are(store: Store) -> None:
    await store.write_blob(keys.manifest("sha256:1"), b"\x00\xff")

    assert await store.read_blob(keys.manifest("sha256:1")) == b"\x00\xff"
    await store.delete_blob(keys.manifest("sha256:1"))
    assert await store.read_blob(keys.manifest("sha256:1")) is None


async def test_what_is_no_json_is_refused(store: Store) -> None:
    with pytest.raises(InvalidArgument):
        await store.commit(Commit(puts=[new("a", number=2**70)]))
    with pytest.raises(InvalidArgument):
        await store.commit(Commit(mark=InboxMark("h", "m", {"when": object()})))


async def test_a_stored_document_that_cannot_be_read_says_so(store: Store) -> None:
    await store.commit(Commit(puts=[Put("Namespace", "", "a", {"spec": "text"}, None)]))
    found = await store.get("Namespace", "", "a")
    assert found is not None

    with pytest.raises(FailedPrecondition, match="Namespace /a"):
        found.read(Namespace)


async def test_whether_the_server_answers_is_known(own_server, connect) -> None:
    store = await connect(own_server, commit_seconds=0.0)
    assert store.reachable
    own_server.kill()
    with pytest.raises((DeadlineExceeded, Unavailable)):
        await store.commit(Commit(puts=[new("a")]))
    assert not store.reachable

    own_server.start()
    await store.time_us()
    assert store.reachable
