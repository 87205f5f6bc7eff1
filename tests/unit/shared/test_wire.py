"""Bytes and headers on the bus."""

from __future__ import annotations

from datetime import UTC, datetime

import orjson
import pytest

from shared import subjects
from shared.bus import wire
from shared.envelope import Envelope
from shared.errors import AlreadyExists, Malformed, PermissionDenied, Unavailable, invalid
from shared.events.workload import WorkloadQueued
from shared.messages.base import Message
from shared.queries import ClaimNode, ExplainPlacement, Heartbeat
from shared.reports import NodeReported
from shared.telemetry.tracing import Cause, caused_by

FACT = WorkloadQueued(namespace="default", name="w", uid="u", owner_kind="Pod")
MOMENT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def sealed(data: bytes) -> bytes:
    around = wire.Seal(
        id="e1.5-1", source="/services/scheduler/one", type="t", about="workload/default/w", time=MOMENT,
        cause=Cause("op", "m0", "tp"), resource_version=7, epoch="e1",
    )  # fmt: skip
    return wire.seal(data, around)


def test_a_sealed_message_is_a_cloudevent_and_comes_back():
    data = sealed(wire.encode(FACT))

    envelope, fact = wire.unseal(WorkloadQueued, data)

    assert fact == FACT
    assert orjson.loads(data)["data"]["ownerKind"] == "Pod"
    assert envelope == Envelope(
        id="e1.5-1", source="/services/scheduler/one", type="t", subject="workload/default/w", time=MOMENT,
        correlationid="op", causationid="m0", traceparent="tp", resourceversion="7", epoch="e1",
        data=orjson.loads(wire.encode(FACT)),
    )  # fmt: skip


@pytest.mark.parametrize("data", [b"", b"[]", b"nonsense", b"\xff", sealed(b'{"namespace": 1}')])
def test_other_bytes_are_malformed_and_not_shown(data: bytes):
    with pytest.raises(Malformed) as caught:
        wire.unseal(WorkloadQueued, data)

    assert "nonsense" not in str(caught.value)


def test_the_causes_name_the_fields():
    with pytest.raises(Malformed) as caught:
        wire.decode(WorkloadQueued, b'{"namespace": "default", "name": {"secret": "hunter2"}}')

    assert {cause.field for cause in caught.value.causes} >= {"name", "uid"}
    assert "hunter2" not in str(caught.value.to_dict())


def test_unknown_fields_are_ignored():
    assert wire.decode(WorkloadQueued, b'{"namespace":"a","name":"b","uid":"c","new":1}').name == "b"


def test_telemetry_comes_alone_or_in_batches():
    one, two = Heartbeat(source="n", incarnation="i", sequence=1), Heartbeat(source="n", incarnation="i", sequence=2)

    assert wire.decode_batch(Heartbeat, wire.encode(one)) == [one]
    assert wire.decode_batch(Heartbeat, b"[" + wire.encode(one) + b"," + wire.encode(two) + b"]") == [one, two]
    with pytest.raises(Malformed):
        wire.decode_batch(Heartbeat, b"[{")


def test_an_error_travels_in_an_answer():
    error = invalid("spec.replicas", "must not be negative")
    body, headers = wire.error_answer(error)

    with pytest.raises(type(error)) as caught:
        wire.raise_answered(headers, body)

    assert caught.value.to_dict() == error.to_dict()


def test_an_answer_without_error_raises_nothing():
    wire.raise_answered(None, b"")
    wire.raise_answered({"content-type": "application/json"}, b"{}")


def test_an_error_with_a_broken_body_keeps_its_code():
    with pytest.raises(Unavailable):
        wire.raise_answered({wire.ERROR: "Unavailable"}, b"not json")


def test_error_fields_of_any_type_can_be_sent():
    body, _ = wire.error_answer(AlreadyExists("x", fields={"when": MOMENT, "path": {1: 2}.keys()}))

    assert orjson.loads(body)["code"] == "AlreadyExists"


@pytest.mark.parametrize(
    ("message", "subject", "honest"),
    [
        (NodeReported(node="n.1", incarnation="i", sequence=1), subjects.report(NodeReported, "n.1"), True),
        (NodeReported(node="n2", incarnation="i", sequence=1), subjects.report(NodeReported, "n1"), False),
        (Heartbeat(source="n.1", incarnation="i"), subjects.telemetry(Heartbeat, "n.1"), True),
        (Heartbeat(source="n2", incarnation="i"), subjects.telemetry(Heartbeat, "n1"), False),
        (ClaimNode(node="n1", machine_id="m", boot_id="b", incarnation="i"), subjects.query(ClaimNode, "n1"), True),
        (ClaimNode(node="n2", machine_id="m", boot_id="b", incarnation="i"), subjects.query(ClaimNode, "n1"), False),
        (ExplainPlacement(namespace="a", name="b"), subjects.query(ExplainPlacement), True),
        (FACT, subjects.fact(WorkloadQueued, "default", "w"), True),
    ],
)
def test_nobody_speaks_for_another(message: Message, subject: str, honest: object):
    if honest:
        wire.check_sender(message, subject)
        return
    with pytest.raises(PermissionDenied):
        wire.check_sender(message, subject)


def test_a_request_carries_its_cause_and_patience():
    with caused_by(Cause("op", "m1", "tp")):
        headers = wire.request_headers(2.5)

    assert headers == {wire.TIMEOUT_MS: "2500", wire.CORRELATION: "op", wire.CAUSATION: "m1", wire.TRACEPARENT: "tp"}
    assert wire.request_headers(1) == {wire.TIMEOUT_MS: "1000"}
