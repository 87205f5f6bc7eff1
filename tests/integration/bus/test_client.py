"""Core NATS through BusClient: questions, writes, reports, telemetry, wakes, and how each of them fails."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from shared import subjects
from shared.bus import jetstream, wire
from shared.bus.connection import Request, ask
from shared.bus.context import MessageContext
from shared.bus.router import query, report, request, telemetry, user_command
from shared.commands.objects import WriteAnswer, WriteObject
from shared.errors import (
    AlreadyExists,
    Cause,
    DeadlineExceeded,
    GpubusError,
    InvalidArgument,
    Malformed,
    PermissionDenied,
    Unavailable,
)
from shared.queries import (
    ClaimAnswer,
    ClaimNode,
    ExplainPlacement,
    Heartbeat,
    LogAnswer,
    PlacementExplanation,
    ReadLog,
)
from shared.reports import NodeReported
from shared.telemetry.tracing import Cause as Origin
from shared.telemetry.tracing import caused_by, current_cause
from tests.integration.bus.conftest import Connect, Serve
from tests.support.bus import kept
from tests.support.servers import NatsServer
from tests.support.wait import eventually

QUESTION = ExplainPlacement(namespace="default", name="w")
REPORT = NodeReported(node="n1", incarnation="i1", sequence=3)


class Explains:
    def __init__(self, act: Any = None) -> None:
        self.act = act
        self.seen: list[MessageContext] = []
        self.causes: list[Origin] = []

    @query(ExplainPlacement)
    async def explain_placement(self, question: ExplainPlacement, ctx: MessageContext) -> PlacementExplanation:
        self.seen.append(ctx)
        self.causes.append(current_cause())
        if self.act is not None:
            await self.act()
        return PlacementExplanation(
            namespace=question.namespace, name=question.name, state="Held", reason="Full", message=""
        )


async def test_a_question_is_answered_with_its_caller_s_correlation(server: NatsServer, connect: Connect, serve: Serve):
    handlers = Explains()
    await serve(server, handlers, "scheduler")
    bus = await connect(server, "gateway")

    with caused_by(Origin("op-1", "m0", "")):
        answer = await bus.ask(QUESTION)

    assert isinstance(answer, PlacementExplanation)
    assert (answer.name, answer.reason) == ("w", "Full")
    assert handlers.causes[0].correlation_id == "op-1"
    assert handlers.seen[0].deadline is not None


async def test_nobody_there_is_unavailable_at_once(server: NatsServer, connect: Connect):
    bus = await connect(server, "gateway")

    with pytest.raises(Unavailable):
        await bus.ask(QUESTION, timeout=30)


async def test_no_answer_in_time_is_deadline_exceeded(server: NatsServer, connect: Connect, serve: Serve):
    async def slow() -> None:
        await asyncio.sleep(5)

    await serve(server, Explains(slow), "scheduler")
    bus = await connect(server, "gateway")

    with pytest.raises(DeadlineExceeded):
        await bus.ask(QUESTION, timeout=0.1)


async def test_an_answered_error_arrives_as_what_it_was(server: NatsServer, connect: Connect, serve: Serve):
    async def refuse() -> None:
        raise InvalidArgument("spec.queue: unknown", (Cause("spec.queue", "unknown"),), {"queue": "q"})

    await serve(server, Explains(refuse), "scheduler")
    bus = await connect(server, "gateway")

    with pytest.raises(InvalidArgument) as caught:
        await bus.ask(QUESTION)

    assert caught.value.causes[0].field == "spec.queue"
    assert caught.value.fields == {"queue": "q"}


async def test_a_bug_is_answered_as_internal_without_its_text(server: NatsServer, connect: Connect, serve: Serve):
    async def bug() -> None:
        raise ZeroDivisionError("secret")

    await serve(server, Explains(bug), "scheduler")
    bus = await connect(server, "gateway")

    with pytest.raises(GpubusError) as caught:
        await bus.ask(QUESTION)

    assert caught.value.code.value == "Internal"
    assert "secret" not in str(caught.value)


async def test_a_malformed_question_is_answered_and_the_handler_never_sees_it(
    server: NatsServer, connect: Connect, serve: Serve
):
    handlers = Explains()
    await serve(server, handlers, "scheduler")
    bus = await connect(server, "gateway")

    answer = await ask(bus.connection, Request(subjects.query(ExplainPlacement), b'{"namespace": 5', 2.0))

    with pytest.raises(Malformed):
        wire.raise_answered(answer.headers, answer.data)
    assert handlers.seen == []


async def test_a_node_cannot_ask_for_another(server: NatsServer, connect: Connect, serve: Serve):
    class Claims:
        @query(ClaimNode)
        async def claim_node(self, question: ClaimNode, ctx: MessageContext) -> ClaimAnswer:
            return ClaimAnswer(accepted=True)

    await serve(server, Claims(), "discovery")
    bus = await connect(server, "node-n1")
    lie = ClaimNode(node="n2", machine_id="m", boot_id="b", incarnation="i")

    answer = await ask(bus.connection, Request(subjects.query(ClaimNode, "n1"), wire.encode(lie), 2.0))

    with pytest.raises(PermissionDenied):
        wire.raise_answered(answer.headers, answer.data)
    assert (await bus.ask(lie.model_copy(update={"node": "n1"}))).accepted


async def test_questions_are_answered_side_by_side(server: NatsServer, connect: Connect, serve: Serve):
    together = asyncio.Barrier(5)

    async def meet() -> None:
        await together.wait()

    await serve(server, Explains(meet), "scheduler")
    bus = await connect(server, "gateway")

    answers = await asyncio.gather(*(bus.ask(QUESTION, timeout=5) for _ in range(5)))

    assert len(answers) == 5


async def test_one_copy_answers_each_question(server: NatsServer, connect: Connect, serve: Serve):
    copies = [Explains(), Explains()]
    for copy in copies:
        await serve(server, copy, "scheduler")
    bus = await connect(server, "gateway")

    for _ in range(20):
        await bus.ask(QUESTION)

    assert sum(len(copy.seen) for copy in copies) == 20
    assert all(copy.seen for copy in copies)


async def test_a_write_is_answered_by_its_owner_or_refused(server: NatsServer, connect: Connect, serve: Serve):
    class Writes:
        @request(WriteObject)
        async def write_object(self, write: WriteObject, ctx: MessageContext) -> WriteAnswer:
            if write.verb == "create":
                raise AlreadyExists("it is there")
            return WriteAnswer(object=write.object, created=True)

    await serve(server, Writes(), "deployer")
    bus = await connect(server, "gateway")
    write = WriteObject(verb="replace", kind="ModelDeployment", namespace="default", name="m", object={"a": 1})

    answer = await bus.write("deployer", write, timeout=2)
    with pytest.raises(AlreadyExists):
        await bus.write("deployer", write.model_copy(update={"verb": "create"}), timeout=2)
    with pytest.raises(Unavailable):
        await bus.write("modelstore", write, timeout=2)

    assert answer.object == {"a": 1}


async def test_a_users_answered_command_carries_principal_and_verb(server: NatsServer, connect: Connect, serve: Serve):
    class Applies:
        @user_command()
        async def apply(self, order: Any, ctx: MessageContext) -> dict[str, Any]:
            return {
                "principal": order.principal,
                "namespace": order.namespace,
                "verb": order.verb,
                "body": order.body.decode(),
            }

    await serve(server, Applies(), "gateway")
    bus = await connect(server, "ada")

    answer = await bus.apply("ada", "", b"kind: Pod", verb="delete")

    assert answer == {"principal": "ada", "namespace": "", "verb": "delete", "body": "kind: Pod"}


async def test_a_report_is_stored_once_however_often_it_is_sent(server: NatsServer, connect: Connect, serve: Serve):
    class Takes:
        def __init__(self) -> None:
            self.seen: list[tuple[NodeReported, MessageContext]] = []

        @report(NodeReported)
        async def on_node_reported(self, seen: NodeReported, ctx: MessageContext) -> None:
            self.seen.append((seen, ctx))

    handlers = Takes()
    await serve(server, handlers, "discovery")
    bus = await connect(server, "node-n1")

    await bus.report(REPORT)
    await bus.report(REPORT)

    await eventually(lambda: handlers.seen)
    (stored,) = await kept(server, subjects.STREAM_REPORTS)
    assert stored.envelope["source"] == "/nodes/n1/discovery"
    assert handlers.seen[0][0] == REPORT
    assert handlers.seen[0][1].message_id == stored.envelope["id"]


async def test_telemetry_reaches_every_copy_also_in_batches_and_liars_are_dropped(
    server: NatsServer, connect: Connect, serve: Serve
):
    class Listens:
        def __init__(self) -> None:
            self.seen: list[int] = []

        @telemetry(Heartbeat)
        async def on_heartbeat(self, beat: Heartbeat, ctx: MessageContext) -> None:
            self.seen.append(beat.sequence)

    copies = [Listens(), Listens()]
    for copy in copies:
        await serve(server, copy, "discovery")
    bus = await connect(server, "node-n1")
    own: list[int] = []
    await bus.on_telemetry(Heartbeat, lambda beat: own.append(beat.sequence))

    await bus.tell(Heartbeat(source="n1", incarnation="i", sequence=1))
    await bus.connection.publish(
        "gpubus.tel.heartbeat.n1", wire.encode(Heartbeat(source="n2", incarnation="i", sequence=9))
    )
    await bus.connection.publish("gpubus.tel.heartbeat.n1", b"[1, 2")
    await bus.tell(*(Heartbeat(source="n1", incarnation="i", sequence=n) for n in (2, 3)))

    await eventually(lambda: all(copy.seen == [1, 2, 3] for copy in copies))
    await eventually(lambda: own == [1, 2, 3])


async def test_a_wake_carries_its_revision(server: NatsServer, connect: Connect):
    agent, controller = await connect(server, "node-n1"), await connect(server, "deployer")
    woken: list[int] = []
    await agent.on_wake("n1", woken.append)
    await agent.connection.flush()

    await controller.wake("n1", 42)
    await controller.wake("n2", 43)
    await controller.connection.publish(subjects.wake("n1"), b"nonsense")
    await controller.wake("n1", 44)

    await eventually(lambda: woken == [42, 44])


async def test_an_agent_answers_questions_about_its_node(server: NatsServer, connect: Connect):
    agent, gateway = await connect(server, "node-n1"), await connect(server, "gateway")

    async def read(question: ReadLog) -> LogAnswer:
        if question.uid == "gone":
            raise InvalidArgument("no such Pod")
        return LogAnswer(text=f"log of {question.uid}")

    await agent.answer(ReadLog, "n1", read)
    await agent.connection.flush()

    assert (await gateway.ask(ReadLog(node="n1", uid="p1"))).text == "log of p1"
    with pytest.raises(InvalidArgument):
        await gateway.ask(ReadLog(node="n1", uid="gone"))
    with pytest.raises(Unavailable):
        await gateway.ask(ReadLog(node="n2", uid="p1"))


async def test_a_message_over_the_limit_is_too_large(server: NatsServer, connect: Connect):
    bus = await connect(server, "node-n1")
    huge = REPORT.model_copy(update={"labels": {"a": "x" * (9 * 1024 * 1024)}})

    with pytest.raises(GpubusError) as caught:
        await bus.report(huge)

    assert caught.value.code.value == "TooLarge"


async def test_a_wrong_expected_sequence_is_told_apart(server: NatsServer, connect: Connect):
    bus = await connect(server)

    with pytest.raises(jetstream.WrongSequence):
        await jetstream.publish(
            bus.connection, "gpubus.evt.workload.admitted.v1.a.b", b"{}", {jetstream.EXPECTED_SEQUENCE: "5"}
        )
