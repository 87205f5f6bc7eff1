"""The user's command on the bus does what REST does, with the same errors; secrets for services; Events from facts."""

import asyncio
import json
from datetime import UTC, datetime

import nats
import pytest

from shared import subjects
from shared.bus import wire
from shared.bus.client import BusClient
from shared.envelope import Envelope
from shared.errors import AlreadyExists, GpubusError, InvalidArgument, Malformed, NotFound, TooLarge
from shared.events.workload import WorkloadHeld
from shared.messages.catalog import type_name
from shared.queries import ReadSecret
from tests.support.bus import kept
from tests.support.wait import eventually

MAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture
async def bus(gateway):
    client = await BusClient.connect(url=gateway.nats.url, user="anna")
    yield client
    await client.close()


async def apply(bus, text, *, verb="apply", namespace="default"):
    return await bus.apply("anna", namespace, text.encode(), verb=verb)


def config(name, **data):
    return json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})


async def test_apply_creates_and_changes_as_kubectl_does(gateway, bus):
    made = await apply(bus, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: viabus}\ndata: {a: '1', b: '2'}\n")
    changed = await apply(bus, config("viabus", b="3"))

    assert made["metadata"]["namespace"] == "default"
    assert changed["data"] == {"b": "3"}
    stored = gateway.call("GET", f"{MAPS}/viabus").body
    assert stored["data"] == {"b": "3"}
    assert [entry["manager"] for entry in stored["metadata"]["managedFields"]] == ["bus"]


async def test_create_and_delete_are_verbs(gateway, bus):
    await apply(bus, config("verbs"), verb="create")
    with pytest.raises(AlreadyExists):
        await apply(bus, config("verbs"), verb="create")

    gone = await apply(bus, config("verbs"), verb="delete")

    assert gone["status"] == "Success"
    assert gateway.call("GET", f"{MAPS}/verbs").status == 404
    with pytest.raises(NotFound):
        await apply(bus, config("verbs"), verb="delete")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("a: [", Malformed),
        ("", Malformed),
        ("kind: ConfigMap\napiVersion: v1\nmetadata: {name: a}\n---\nkind: X", Malformed),
        ('{"kind": "ConfigMap", "kind": "Secret"}', Malformed),
        ("kind: ConfigMap\napiVersion: v1\nmetadata: {name: a}\ndata: {x: a, x: b}", Malformed),
        ("a: &a [*a]", Malformed),
        ("\n".join(["a0: &a0 x", *(f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10))]), Malformed),
        ("[" * 50_000, Malformed),
        ("kind: ConfigMap\napiVersion: v1\nmetadata: {name: a}\ndata: {x: " + "v" * (4 << 20) + "}", TooLarge),
        ("kind: Nonsense\napiVersion: v1\nmetadata: {name: a}", Malformed),
        ("kind: ConfigMap\napiVersion: v2\nmetadata: {name: a}", Malformed),
        ("kind: ConfigMap\napiVersion: v1", Malformed),
        ("kind: ConfigMap\napiVersion: v1\nmetadata: {name: a, namespace: other}", Malformed),
        ("kind: ConfigMap\napiVersion: v1\nmetadata: {name: a}\nbogus: 1", Malformed),
        ("kind: ConfigMap\napiVersion: v1\nmetadata: {name: A}", InvalidArgument),
    ],
)
async def test_bad_manifests_get_the_errors_of_rest(gateway, bus, text, error):
    with pytest.raises(error) as caught:
        await apply(bus, text)

    assert caught.value.message


async def test_same_error_by_both_ways(gateway, bus):
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "same"}, "data": {"x": 1}}
    rest = gateway.call("PATCH", f"{MAPS}/same?fieldManager=t", body, content="application/apply-patch+yaml").body

    with pytest.raises(GpubusError) as caught:
        await apply(bus, json.dumps(body))

    assert caught.value.message == rest["message"]


async def test_unknown_verb_is_refused(gateway, bus):
    with pytest.raises(InvalidArgument):
        await apply(bus, config("x"), verb="explode")


async def test_cluster_wide_kinds_go_by_the_underscore(gateway, bus):
    made = await apply(bus, "apiVersion: v1\nkind: Namespace\nmetadata: {name: busns}\n", namespace="")

    assert made["status"]["phase"] == "Active"


async def raw(gateway):
    return await nats.connect(gateway.nats.url, inbox_prefix="_INBOX_anna")


async def test_stored_command_is_carried_out_and_answered(gateway):
    client = await raw(gateway)
    inbox = client.new_inbox()
    answers = await client.subscribe(inbox)
    headers = {wire.VERB: "apply", wire.REPLY_TO: inbox}

    ack = await client.jetstream().publish(
        subjects.user_apply("anna", "default", stored=True), config("stored", a="1").encode(), headers=headers
    )
    answer = await answers.next_msg(timeout=10)

    assert ack.stream == "COMMANDS"
    assert json.loads(answer.data)["data"] == {"a": "1"}
    assert gateway.call("GET", f"{MAPS}/stored").body["data"] == {"a": "1"}
    await client.close()


async def test_stored_command_waits_for_a_gateway_that_is_down(gateway):
    client = await raw(gateway)
    gateway.child.kill()

    await client.jetstream().publish(subjects.user_apply("anna", "default", stored=True), config("later").encode())
    gateway.child.start().ready()

    await eventually(lambda: gateway.call("GET", f"{MAPS}/later").status == 200, timeout=15)
    await client.close()


async def test_broken_bytes_become_a_dead_letter_and_stop_nobody(gateway):
    client = await raw(gateway)
    subject = subjects.user_apply("anna", "default", stored=True)

    await client.jetstream().publish(subject, b"\xff\xfe{{{")
    await client.jetstream().publish(subject, config("next").encode())

    async def parked():
        return [letter for letter in await kept(gateway.nats, "DEADLETTERS") if "apply" in letter.subject]

    await eventually(parked, timeout=15)
    await eventually(lambda: gateway.call("GET", f"{MAPS}/next").status == 200, timeout=15)
    await client.close()


async def test_refused_stored_command_is_answered_and_no_dead_letter(gateway):
    client = await raw(gateway)
    before = len(await kept(gateway.nats, "DEADLETTERS"))
    inbox = client.new_inbox()
    answers = await client.subscribe(inbox)

    body = b"kind: ConfigMap\napiVersion: v1\nmetadata: {name: BAD}\n"
    await client.jetstream().publish(
        subjects.user_apply("anna", "default", stored=True), body, headers={wire.REPLY_TO: inbox}
    )
    answer = await answers.next_msg(timeout=10)

    assert answer.headers[wire.ERROR] == "InvalidArgument"
    assert len(await kept(gateway.nats, "DEADLETTERS")) == before
    await client.close()


async def test_services_read_secrets(gateway):
    gateway.kubectl("create", "secret", "generic", "hub", "--from-literal=token=hf_abc", "--from-literal=other=x")
    service = await BusClient.connect(url=gateway.nats.url, user="modelstore")

    found = await service.ask(ReadSecret(namespace="default", name="hub", keys=["token", "nope"]))
    with pytest.raises(NotFound):
        await service.ask(ReadSecret(namespace="default", name="nope"))

    assert found.data == {"token": "hf_abc"}
    assert "hf_abc" not in gateway.child.log_path.read_text()
    await service.close()


async def test_facts_become_events_that_describe_shows(gateway):
    made = gateway.call("POST", MAPS, {"metadata": {"name": "watched"}}).body
    client = await raw(gateway)
    fact = WorkloadHeld(
        namespace="default", name="w", uid="w-uid", reason="NoCapacity", message="needs 2 cards; the largest node has 1",
        owner_kind="ConfigMap", owner_name="watched", owner_uid=made["metadata"]["uid"],
    )  # fmt: skip
    for number in range(3):
        sealed = Envelope(
            id=f"t.{number}", source="/services/scheduler/1", type=type_name(WorkloadHeld), time=datetime(2026, 1, 1, tzinfo=UTC),
            data=fact.model_dump(by_alias=True, mode="json"),
        )  # fmt: skip
        await client.publish(subjects.fact(WorkloadHeld, "default", "w"), sealed.model_dump_json().encode())
    await client.publish(subjects.fact(WorkloadHeld, "default", "w"), b"not an envelope")
    await client.flush()

    path = "/api/v1/namespaces/default/events?fieldSelector=involvedObject.kind=Workload"
    found = await eventually(lambda: [e for e in gateway.call("GET", path).body["items"] if e["count"] == 3])
    said = await asyncio.to_thread(gateway.kubectl, "describe", "cm", "watched")

    assert found[0]["type"] == "Warning"
    assert "WorkloadHeld" in said
    assert "needs 2 cards" in said
    assert "x3" in said
    assert "WorkloadHeld" in await asyncio.to_thread(gateway.kubectl, "get", "events")
    await client.close()
