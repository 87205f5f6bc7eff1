"""The settle table, row by row, on a real server."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest

from shared import subjects
from shared.bus import jetstream, wire
from shared.bus.client import BusClient
from shared.bus.context import MessageContext, UserCommand
from shared.bus.dead_letter import DeadLetter, letters
from shared.bus.pull import DurablePull
from shared.bus.router import command, on, user_command
from shared.commands.workload import SubmitWorkload
from shared.errors import FailedPrecondition, NotFound, Unavailable, invalid
from shared.events.workload import WorkloadAdmitted
from shared.messages.catalog import type_name
from tests.integration.bus.conftest import CLOCK, Connect, Serve
from tests.support.bus import consumer, kept
from tests.support.servers import NatsServer
from tests.support.wait import eventually

FACTS = subjects.owner_stream("scheduler")
ADMITTED = "deployer-on-workload-admitted"


def a_fact(name: str = "w") -> WorkloadAdmitted:
    return WorkloadAdmitted(namespace="default", name=name, uid="u")


async def publish(bus: BusClient, message: Any, message_id: str = "m1", **headers: str) -> None:
    cls = type(message)
    build = subjects.fact if issubclass(cls, WorkloadAdmitted) else subjects.command
    around = wire.Seal(
        id=message_id,
        source="/services/test/one",
        type=type_name(cls),
        about="workload/default/w",
        time=CLOCK.now(),
        cause=wire.Cause("op-1", "cause-1", ""),
        resource_version=42,
        epoch="e1",
    )
    body = wire.seal(wire.encode(message), around)
    subject = build(cls, message.scope, message.key)
    await jetstream.publish(bus.connection, subject, body, {jetstream.MESSAGE_ID: message_id} | headers)


async def settled(server: NatsServer, stream: str = FACTS, durable: str = ADMITTED) -> bool:
    info = await consumer(server, stream, durable)
    return info.num_ack_pending == 0 and info.num_pending == 0


class Admitted:
    """Handles WorkloadAdmitted by calling `act`."""

    def __init__(self, act: Any = None) -> None:
        self.act = act
        self.seen: list[MessageContext] = []

    @on(WorkloadAdmitted, attempts=2)
    async def on_workload_admitted(self, fact: WorkloadAdmitted, ctx: MessageContext) -> None:
        self.seen.append(ctx)
        if self.act is not None:
            await self.act(fact, ctx)


def raising(error: Exception) -> Any:
    async def act(*_: Any) -> None:
        raise error

    return act


async def test_a_handler_that_returns_acks_and_knows_its_message(server: NatsServer, connect: Connect, serve: Serve):
    handlers = Admitted()
    await serve(server, handlers)

    await publish(await connect(server), a_fact("w.1"))

    await eventually(lambda: handlers.seen)
    await eventually(lambda: settled(server))
    ctx = handlers.seen[0]
    assert (ctx.message_id, ctx.correlation_id, ctx.causation_id) == ("m1", "op-1", "cause-1")
    assert (ctx.resource_version, ctx.epoch, ctx.attempt, ctx.handler) == (42, "e1", 1, "on_workload_admitted")
    assert ctx.subject == "gpubus.evt.workload.admitted.v1.default.w_2e1"
    assert ctx.mark({"a": 1}).message_id == "m1"
    assert await kept(server, subjects.STREAM_DEAD_LETTERS) == []


async def test_a_transient_failure_comes_again_after_the_delay_it_asked_for(
    server: NatsServer, connect: Connect, serve: Serve
):
    async def once(_: Any, ctx: MessageContext) -> None:
        if ctx.attempt == 1:
            raise Unavailable("redis is away", fields={"retry_after": 0.05})

    handlers = Admitted(once)
    await serve(server, handlers)

    await publish(await connect(server), a_fact())

    await eventually(lambda: len(handlers.seen) == 2)
    await eventually(lambda: settled(server))
    assert [ctx.attempt for ctx in handlers.seen] == [1, 2]
    assert {ctx.message_id for ctx in handlers.seen} == {"m1"}


async def test_used_up_attempts_are_a_dead_letter_and_the_message_ends(
    server: NatsServer, connect: Connect, serve: Serve
):
    handlers = Admitted(raising(Unavailable("still away", fields={"retry_after": 0.05})))
    await serve(server, handlers)
    bus = await connect(server, "admin")

    await publish(bus, a_fact())

    parked: list[DeadLetter] = await eventually(lambda: letters(bus.connection))
    await eventually(lambda: settled(server))
    (letter,) = parked
    assert (letter.service, letter.handler, letter.code, letter.attempts) == (
        "deployer",
        "on_workload_admitted",
        "Unavailable",
        2,
    )
    assert (letter.stream, letter.stream_sequence) == (FACTS, 1)
    assert letter.subject == "gpubus.evt.workload.admitted.v1.default.w"
    assert orjson.loads(letter.data)["id"] == "m1"
    assert len(handlers.seen) == 2


async def test_a_permanent_failure_of_a_facts_handler_is_a_dead_letter_at_once(
    server: NatsServer, connect: Connect, serve: Serve
):
    handlers = Admitted(raising(FailedPrecondition("cannot be")))
    await serve(server, handlers)
    bus = await connect(server, "admin")

    await publish(bus, a_fact())

    (letter,) = await eventually(lambda: letters(bus.connection))
    await eventually(lambda: settled(server))
    assert (letter.code, letter.reason, letter.attempts) == ("FailedPrecondition", "cannot be", 1)
    assert len(handlers.seen) == 1


@pytest.mark.parametrize(
    "body",
    [
        b"\xff\xfenot json",
        b"{}",
        b"[]",
        b'{"id": "x", "source": "s", "type": "t", "time": "2026-01-01T00:00:00Z", "data": {}}',
    ],
)
async def test_bytes_that_cannot_be_decoded_are_a_dead_letter_and_the_next_message_is_handled(
    server: NatsServer, connect: Connect, serve: Serve, body: bytes
):
    handlers = Admitted()
    await serve(server, handlers)
    bus = await connect(server, "admin")

    await jetstream.publish(bus.connection, subjects.fact(WorkloadAdmitted, "default", "w"), body, {})
    await publish(bus, a_fact("next"))

    (letter,) = await eventually(lambda: letters(bus.connection))
    await eventually(lambda: settled(server))
    assert (letter.code, letter.data) == ("Malformed", body)
    assert [ctx.message_id for ctx in handlers.seen] == ["m1"]


async def test_a_bug_gets_three_attempts_and_then_is_a_dead_letter_without_its_text(
    server: NatsServer, connect: Connect, serve: Serve
):
    class Buggy:
        calls = 0

        @on(WorkloadAdmitted)
        async def on_workload_admitted(self, fact: WorkloadAdmitted, ctx: MessageContext) -> None:
            self.calls += 1
            raise KeyError("secret")

    handlers = Buggy()
    await serve(server, handlers)
    bus = await connect(server, "admin")

    await publish(bus, a_fact())

    (letter,) = await eventually(lambda: letters(bus.connection), timeout=15)
    assert handlers.calls == 3
    assert (letter.code, letter.attempts) == ("Internal", 3)
    assert "secret" not in letter.reason


async def test_a_refused_command_is_acked_and_neither_retried_nor_parked(
    server: NatsServer, connect: Connect, serve: Serve
):
    class Refuses:
        calls = 0

        @command(SubmitWorkload)
        async def submit_workload(self, order: SubmitWorkload, ctx: MessageContext) -> None:
            self.calls += 1
            raise NotFound("no such queue")

    handlers = Refuses()
    await serve(server, handlers, "scheduler")

    await publish(await connect(server), SubmitWorkload(namespace="default", name="w", uid="u", spec={}))

    await eventually(lambda: handlers.calls)
    await eventually(lambda: settled(server, subjects.STREAM_COMMANDS, "scheduler-submit-workload"))
    assert handlers.calls == 1
    assert await kept(server, subjects.STREAM_COMMANDS) == []
    assert await kept(server, subjects.STREAM_DEAD_LETTERS) == []


class Applies:
    def __init__(self) -> None:
        self.seen: list[UserCommand] = []

    @user_command()
    async def apply(self, order: UserCommand, ctx: MessageContext) -> dict[str, Any]:
        self.seen.append(order)
        if order.body == b"bad":
            raise invalid("spec.replicas", "must not be negative")
        return {"kind": "Pod", "verb": order.verb}


@pytest.mark.parametrize(
    ("body", "error", "answer"),
    [(b"good", None, {"kind": "Pod", "verb": "create"}), (b"bad", "InvalidArgument", None)],
    ids=["done", "refused"],
)
async def test_a_users_stored_command_is_answered_on_its_inbox(
    server: NatsServer, connect: Connect, serve: Serve, body: bytes, error: str | None, answer: Any
):
    handlers = Applies()
    await serve(server, handlers, "gateway")
    user = await connect(server, "ada")
    answers: list[Any] = []

    async def answered(message: Any) -> None:
        answers.append(message)

    await user.listen("_INBOX_ada.answers", answered)
    headers = {wire.VERB: "create", wire.REPLY_TO: "_INBOX_ada.answers"}
    await jetstream.publish(user.connection, subjects.user_apply("ada", "default", stored=True), body, headers)

    (message,) = await eventually(lambda: answers)
    await eventually(lambda: settled(server, subjects.STREAM_COMMANDS, "gateway-apply"))
    assert message.headers.get(wire.ERROR) == error
    if answer:
        assert orjson.loads(message.data) == answer
    assert (handlers.seen[0].principal, handlers.seen[0].namespace, handlers.seen[0].verb) == (
        "ada",
        "default",
        "create",
    )
    assert await kept(server, subjects.STREAM_DEAD_LETTERS) == []


async def test_an_answer_never_goes_to_another_users_inbox(server: NatsServer, connect: Connect, serve: Serve):
    handlers = Applies()
    await serve(server, handlers, "gateway")
    eve = await connect(server, "eve")
    stolen: list[Any] = []

    async def heard(message: Any) -> None:
        stolen.append(message)

    await eve.listen("_INBOX_bob.>", heard)
    headers = {wire.REPLY_TO: "_INBOX_bob.answers"}
    await jetstream.publish(eve.connection, subjects.user_apply("eve", "default", stored=True), b"good", headers)

    await eventually(lambda: handlers.seen)
    await eventually(lambda: settled(server, subjects.STREAM_COMMANDS, "gateway-apply"))
    await eve.connection.flush()
    assert stolen == []


async def test_a_cancelled_handler_settles_nothing_and_the_message_comes_again(
    server: NatsServer, connect: Connect, serve: Serve
):
    started = asyncio.Event()

    async def hang(*_: Any) -> None:
        started.set()
        await asyncio.sleep(60)

    first = Admitted(hang)
    runner = await serve(server, first)
    await publish(await connect(server), a_fact())
    await started.wait()

    await runner.stop()
    second = Admitted()
    await serve(server, second)

    await eventually(lambda: second.seen)
    assert second.seen[0].message_id == "m1"
    assert second.seen[0].attempt == 2


async def test_a_slow_handler_keeps_its_message(server: NatsServer, connect: Connect, serve: Serve):
    async def slow(*_: Any) -> None:
        await asyncio.sleep(4.5)  # half as long again as the server waits for an ack

    first, second = Admitted(slow), Admitted(slow)
    await serve(server, first)
    await serve(server, second)

    await publish(await connect(server), a_fact())

    await eventually(lambda: settled(server), timeout=15)
    assert len(first.seen) + len(second.seen) == 1


async def test_deliveries_used_up_by_crashes_are_a_dead_letter(server: NatsServer, connect: Connect, serve: Serve):
    bus = await connect(server, "admin")
    await publish(bus, a_fact())
    pull = DurablePull(bus.connection, FACTS, ADMITTED)
    await pull.open()
    for _ in range(8):  # what a process does that dies on each delivery
        (message,) = await pull.fetch()
        await message.nak()

    handlers = Admitted()
    await serve(server, handlers)

    (letter,) = await eventually(lambda: letters(bus.connection))
    assert (letter.handler, letter.code, letter.attempts) == ("on_workload_admitted", "Internal", 8)
    assert orjson.loads(letter.data)["id"] == "m1"
    assert handlers.seen == []


async def test_an_absorbed_duplicate_is_delivered_once(server: NatsServer, connect: Connect, serve: Serve):
    handlers = Admitted()
    await serve(server, handlers)
    bus = await connect(server)

    for _ in range(3):
        await publish(bus, a_fact())
    await publish(bus, a_fact(), "m2")

    await eventually(lambda: len(handlers.seen) == 2)
    assert [ctx.message_id for ctx in handlers.seen] == ["m1", "m2"]


async def test_copies_share_a_durable(server: NatsServer, connect: Connect, serve: Serve):
    async def busy(*_: Any) -> None:
        await asyncio.sleep(0.01)

    copies = [Admitted(busy) for _ in range(3)]
    for copy in copies:
        await serve(server, copy)
    bus = await connect(server)

    for number in range(30):
        await publish(bus, a_fact(f"w{number}"), f"m{number}")

    await eventually(lambda: sum(len(copy.seen) for copy in copies) == 30)
    assert sorted(ctx.message_id for copy in copies for ctx in copy.seen) == sorted(f"m{n}" for n in range(30))
    assert all(copy.seen for copy in copies)


async def test_a_handler_with_workers_takes_several_at_once(server: NatsServer, connect: Connect, serve: Serve):
    together = asyncio.Barrier(3)

    class Parallel:
        met = 0

        @on(WorkloadAdmitted, workers=3)
        async def on_workload_admitted(self, fact: WorkloadAdmitted, ctx: MessageContext) -> None:
            await together.wait()
            self.met += 1

    handlers = Parallel()
    await serve(server, handlers)
    bus = await connect(server)

    for number in range(3):
        await publish(bus, a_fact(f"w{number}"), f"m{number}")

    await eventually(lambda: handlers.met == 3)
