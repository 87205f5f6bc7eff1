"""Writes of whole objects, as kubectl's users know them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from shared.clock import SystemClock
from shared.commands.objects import WriteAnswer, WriteObject
from shared.errors import Cause
from shared.events.objects import GatewayObjectApplied, GatewayObjectRemoved
from shared.store.client import Store
from shared.store.documents import Commit, Put
from shared.store.names import LABEL
from shared.store.objects import ObjectWriter
from shared.store.outbox import Outbox
from shared.store.rules import WriteRules
from tests.support.proxy import proxied


def facts(old: Any, new: Any) -> tuple[Any, ...]:
    if new is None or (new.deleting and not (old and old.deleting)):
        gone = old or new
        return (GatewayObjectRemoved(kind=gone.kind, namespace=gone.namespace, name=gone.name, uid=gone.uid),)
    if old is None or old.metadata.generation != new.metadata.generation:
        return (
            GatewayObjectApplied(
                kind=new.kind, namespace=new.namespace, name=new.name, uid=new.uid, generation=new.metadata.generation
            ),
        )
    return ()


def validate(new: Any, old: Any, lookup: Any) -> list[Cause]:
    causes = [Cause(f"data[{key}]", "is empty") for key, value in new.data.items() if not value]
    if old is not None and old.immutable and new.data != old.data:
        causes.append(Cause("data", "is immutable", "FieldValueForbidden"))
    if "wants" in new.data and lookup("Secret", new.namespace, new.data["wants"]) is None:
        causes.append(Cause("data[wants]", f"Secret {new.data['wants']} does not exist", "FieldValueNotFound"))
    return causes


RULES = {
    "Namespace": WriteRules(kind="Namespace", facts=facts, names=LABEL),
    "ConfigMap": WriteRules(
        kind="ConfigMap",
        validate=validate,
        facts=facts,
        needs=lambda new: [("Secret", new.namespace, new.data["wants"])] if "wants" in new.data else [],
    ),
    "ModelArtifact": WriteRules(kind="ModelArtifact", finalizers=("gpubus.io/copies",)),
    "LocalQueue": WriteRules(kind="LocalQueue"),
}


@pytest.fixture
async def store(server, connect) -> Store:
    store = await connect(server, service="gateway")
    await store.commit(Commit(puts=[Put("Namespace", "", "default", {"kind": "Namespace"}, None)]))
    return store


@pytest.fixture
def writer(store: Store) -> ObjectWriter:
    return ObjectWriter(store, RULES, SystemClock())


def config_map(data: dict[str, str] | None = None, **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "c", "namespace": "default", **metadata},
        "data": data or {"a": "1"},
    }


def create(body: dict[str, Any] | None = None, **fields: Any) -> WriteObject:
    known: dict[str, Any] = {
        "verb": "create",
        "kind": "ConfigMap",
        "namespace": "default",
        "name": "c",
        "object": body or config_map(),
    }
    return WriteObject(**known | fields)


def replace(body: dict[str, Any], **fields: Any) -> WriteObject:
    return create(body, verb="replace", **fields)


def delete(**fields: Any) -> WriteObject:
    return create(verb="delete", **fields)


def ok(answer: WriteAnswer) -> dict[str, Any]:
    assert answer.error is None, answer.error
    assert answer.object is not None
    return answer.object


def refused(answer: WriteAnswer) -> dict[str, Any]:
    assert answer.error is not None, answer.object
    return answer.error


async def test_a_created_object_is_stored_as_answered(writer: ObjectWriter, store: Store) -> None:
    answer = await writer.write(create(operation_id="op-1"))

    made = ok(answer)
    found = await store.get("ConfigMap", "default", "c")
    assert found is not None
    assert found.json() == made
    assert answer.created
    assert answer.operation_id == "op-1"
    assert made["metadata"]["generation"] == 1
    assert made["metadata"]["uid"]
    entries = await Outbox(store).read("0-0", 10, 0)
    assert [(entry.type, str(entry.revision)) for entry in entries] == [
        ("gpubus.object-gateway.applied.v1", made["metadata"]["resourceVersion"])
    ]


async def test_generation_rises_with_the_spec_and_not_with_labels(writer: ObjectWriter) -> None:
    made = ok(await writer.write(create()))
    labelled = ok(await writer.write(replace(config_map(labels={"x": "y"}))))
    changed = ok(await writer.write(replace(config_map({"a": "2"}, labels={"x": "y"}))))

    assert labelled["metadata"]["generation"] == 1
    assert labelled["metadata"]["resourceVersion"] > made["metadata"]["resourceVersion"]
    assert changed["metadata"]["generation"] == 2
    for name in ("uid", "creationTimestamp"):
        assert changed["metadata"][name] == made["metadata"][name]


async def test_an_equal_object_is_not_written(writer: ObjectWriter, store: Store) -> None:
    made = ok(await writer.write(create()))
    before = store.seen

    again = ok(await writer.write(replace(config_map())))

    assert again == made
    assert await store.revision() == before


async def test_a_stale_revision_is_aborted_and_the_current_one_passes(writer: ObjectWriter) -> None:
    made = ok(await writer.write(create()))
    first = int(made["metadata"]["resourceVersion"])
    ok(await writer.write(replace(config_map({"a": "2"}), expected_revision=first)))

    by_request = refused(await writer.write(replace(config_map({"a": "3"}), expected_revision=first)))
    by_object = refused(await writer.write(replace(config_map({"a": "3"}, resourceVersion=str(first)))))

    for error in (by_request, by_object):
        assert error["code"] == "Aborted"
        assert "please apply your changes to the latest version" in error["message"]


async def test_writers_without_a_revision_all_succeed(writer: ObjectWriter, store: Store) -> None:
    ok(await writer.write(create()))

    answers = await asyncio.gather(*(writer.write(replace(config_map({"a": str(number + 10)}))) for number in range(4)))

    assert all(answer.error is None for answer in answers)
    found = await store.get("ConfigMap", "default", "c")
    assert found is not None
    assert found.body["metadata"]["generation"] == 5


async def test_an_unknown_namespace_names_the_command_that_creates_it(writer: ObjectWriter) -> None:
    error = refused(await writer.write(create(config_map(namespace="nope"), namespace="nope")))

    assert error["code"] == "NotFound"
    assert "kubectl create namespace nope" in error["message"]


async def test_nothing_new_comes_into_a_namespace_that_is_being_deleted(writer: ObjectWriter) -> None:
    holding = {"metadata": {"name": "going", "finalizers": ["gpubus.io/content"]}}
    ok(await writer.write(WriteObject(verb="create", kind="Namespace", name="going", object=holding)))
    ok(await writer.write(WriteObject(verb="delete", kind="Namespace", name="going")))

    error = refused(await writer.write(create(config_map(namespace="going"), namespace="going")))

    assert error["code"] == "FailedPrecondition"


async def test_each_wrong_field_is_one_cause(writer: ObjectWriter) -> None:
    body = config_map({"a": "", "b": ""}, labels={"bad key": "v", "ok": "-"}, name="Bad_Name")

    error = refused(await writer.write(create(body, name="Bad_Name")))

    assert error["code"] == "InvalidArgument"
    assert {cause["field"] for cause in error["causes"]} == {
        "metadata.name",
        "metadata.labels",
        "metadata.labels[ok]",
        "data[a]",
        "data[b]",
    }


async def test_unknown_fields_and_wrong_types_are_malformed(writer: ObjectWriter) -> None:
    assert refused(await writer.write(create({**config_map(), "extra": 1})))["code"] == "Malformed"
    assert refused(await writer.write(create({**config_map(), "data": []})))["code"] == "Malformed"
    assert refused(await writer.write(create(object=None)))["code"] == "InvalidArgument"


async def test_an_object_that_names_another_is_invalid(writer: ObjectWriter) -> None:
    error = refused(await writer.write(create({**config_map(name="d"), "apiVersion": "v2", "kind": "Secret"})))

    assert {cause["field"] for cause in error["causes"]} == {"metadata.name", "apiVersion", "kind"}


async def test_validation_looks_up_what_it_named(writer: ObjectWriter, store: Store) -> None:
    wanting = create(config_map({"wants": "s"}))
    assert refused(await writer.write(wanting))["causes"][0]["field"] == "data[wants]"

    await store.commit(Commit(puts=[Put("Secret", "default", "s", {}, None)]))
    ok(await writer.write(wanting))


async def test_immutable_means_immutable(writer: ObjectWriter) -> None:
    ok(await writer.write(create({**config_map(), "immutable": True})))

    assert (
        refused(await writer.write(replace({**config_map({"a": "2"}), "immutable": True})))["code"] == "InvalidArgument"
    )
    assert refused(await writer.write(replace(config_map(uid="other"))))["code"] == "Aborted"


async def test_names_taken_and_names_missing(writer: ObjectWriter) -> None:
    ok(await writer.write(create()))

    assert refused(await writer.write(create()))["code"] == "AlreadyExists"
    assert refused(await writer.write(replace(config_map(name="d"), name="d")))["code"] == "NotFound"
    assert refused(await writer.write(delete(name="d")))["code"] == "NotFound"
    assert (
        refused(await writer.write(create(config_map(resourceVersion="1", name="e"), name="e")))["code"]
        == "InvalidArgument"
    )
    assert refused(await writer.write(create(kind="Pod")))["code"] == "NotFound"


async def test_what_the_system_keeps_is_not_written_by_users(writer: ObjectWriter, store: Store) -> None:
    assert refused(await writer.write(create(kind="LocalQueue")))["code"] == "Unimplemented"
    await store.commit(Commit(puts=[Put("LocalQueue", "default", "c", {"spec": {"clusterQueue": "q"}}, None)]))
    assert (await writer.write(delete(kind="LocalQueue"))).error is None


async def test_dry_run_answers_and_stores_nothing(writer: ObjectWriter, store: Store) -> None:
    before = store.seen
    made = ok(await writer.write(create(dry_run=True, idempotency_key="k")))
    assert made["metadata"]["uid"]
    assert "resourceVersion" not in made["metadata"]
    assert refused(await writer.write(create(config_map({"a": ""}), dry_run=True)))["code"] == "InvalidArgument"

    assert await store.revision() == before
    ok(await writer.write(create()))
    assert (await writer.write(delete(dry_run=True))).error is None
    assert await store.get("ConfigMap", "default", "c") is not None


async def test_a_deletion_checks_what_the_caller_expects(writer: ObjectWriter, store: Store) -> None:
    made = ok(await writer.write(create()))

    assert refused(await writer.write(delete(expected_uid="other")))["code"] == "Aborted"
    assert refused(await writer.write(delete(expected_revision=1)))["code"] == "Aborted"
    gone = await writer.write(delete(expected_uid=made["metadata"]["uid"]))

    assert gone.object is None
    assert gone.error is None
    assert await store.get("ConfigMap", "default", "c") is None
    assert [entry.type for entry in await Outbox(store).read("0-0", 10, 0)][-1] == "gpubus.object-gateway.removed.v1"


ARTIFACT: dict[str, Any] = {
    "metadata": {"name": "m", "namespace": "default"},
    "spec": {"source": {"huggingFace": {"repository": "o/n", "revision": "main"}}},
}


async def test_finalizers_hold_a_deleted_object_until_its_owner_lets_go(writer: ObjectWriter, store: Store) -> None:
    request = WriteObject(verb="create", kind="ModelArtifact", namespace="default", name="m", object=ARTIFACT)
    made = ok(await writer.write(request))
    assert made["metadata"]["finalizers"] == ["gpubus.io/copies"]
    gone = request.model_copy(update={"verb": "delete", "object": None})

    marked = ok(await writer.write(gone))
    again = ok(await writer.write(gone))

    assert marked["metadata"]["deletionTimestamp"]
    assert again == marked
    assert refused(await writer.write(request))["code"] == "AlreadyExists"
    with_more = {**marked, "metadata": {**marked["metadata"], "finalizers": ["gpubus.io/copies", "a/b"]}}
    more = refused(await writer.write(request.model_copy(update={"verb": "replace", "object": with_more})))
    assert more["causes"][0]["field"] == "metadata.finalizers"
    freed = {**marked, "metadata": {**marked["metadata"], "finalizers": []}}
    last = await writer.write(request.model_copy(update={"verb": "replace", "object": freed}))
    assert last.error is None
    assert last.object is None
    assert await store.get("ModelArtifact", "default", "m") is None


async def test_status_is_dropped_on_create_kept_on_replace_and_replaced_by_its_own_verb(
    writer: ObjectWriter, store: Store
) -> None:
    lying = {**ARTIFACT, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    request = WriteObject(verb="create", kind="ModelArtifact", namespace="default", name="m", object=lying)
    made = ok(await writer.write(request))
    assert not (made.get("status") or {}).get("conditions")

    found = await store.get("ModelArtifact", "default", "m")
    assert found is not None
    status = {"conditions": [{"type": "Ready", "status": "False", "reason": "Testing"}], "fromTheFuture": 1}
    await store.commit(Commit(puts=[Put(*found.key, {**found.body, "status": status}, found.revision)]))
    kept = ok(await writer.write(request.model_copy(update={"verb": "replace"})))
    assert kept["status"] == status

    mine = {"status": {"conditions": [{"type": "Ready", "status": "True", "reason": "Mine"}]}}
    own = ok(await writer.write(request.model_copy(update={"verb": "status", "object": mine})))
    assert own["status"]["conditions"][0]["reason"] == "Mine"
    assert own["metadata"]["generation"] == kept["metadata"]["generation"]


async def test_a_repeat_gets_the_first_answer(writer: ObjectWriter, store: Store) -> None:
    first = await writer.write(create(idempotency_key="k-1"))
    ok(await writer.write(replace(config_map({"a": "2"}))))
    repeat = await writer.write(create(idempotency_key="k-1"))
    gone = await writer.write(delete(idempotency_key="k-2"))
    gone_again = await writer.write(delete(idempotency_key="k-2"))

    assert repeat == first
    assert gone_again == gone
    assert gone.error is None


async def test_a_repeat_of_a_refusal_is_refused_alike(writer: ObjectWriter) -> None:
    first = await writer.write(replace(config_map(), idempotency_key="k-3"))
    ok(await writer.write(create()))
    repeat = await writer.write(replace(config_map(), idempotency_key="k-3"))

    assert refused(first)["code"] == "NotFound"
    assert repeat == first


async def test_a_repeat_while_the_first_still_runs_is_made_once(writer: ObjectWriter, store: Store) -> None:
    answers = await asyncio.gather(*(writer.write(create(idempotency_key="k-4")) for _ in range(8)))

    assert len({answer.model_dump_json() for answer in answers}) == 1
    assert len(await store.log_since(int(ok(answers[0])["metadata"]["resourceVersion"]) - 1, ["ConfigMap"])) == 1


async def test_a_large_object_is_read_again_for_its_repeat(writer: ObjectWriter) -> None:
    large = config_map({"a": "x" * 100_000})
    first = await writer.write(create(large, idempotency_key="k-5"))
    repeat = await writer.write(create(large, idempotency_key="k-5"))

    assert repeat.object == first.object


async def test_a_passed_deadline_stores_nothing(writer: ObjectWriter, store: Store) -> None:
    error = refused(await writer.write(create(deadline_us=1)))

    assert error["code"] == "DeadlineExceeded"
    assert await store.get("ConfigMap", "default", "c") is None


async def test_a_write_whose_answer_was_lost_is_answered_as_made(server, store, connect) -> None:
    async with proxied(server.port) as proxy:
        unlucky = await connect(server, service="gateway", instance="two", url=f"redis://127.0.0.1:{proxy.port}/0")
        proxy.lose_answer_to(b"creationTimestamp")

        made = ok(await ObjectWriter(unlucky, RULES, SystemClock()).write(create()))

        assert proxy.lost == 1
        found = await store.get("ConfigMap", "default", "c")
        assert found is not None
        assert found.json() == made
        await unlucky.close()
