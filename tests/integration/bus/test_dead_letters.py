"""Dead letters: listing them, trying one again under a new id, and what is kept of one."""

from __future__ import annotations

import pytest

from shared import subjects
from shared.bus.context import MessageContext
from shared.bus.dead_letter import DeadLetter, bury, letters, redrive
from shared.bus.router import on
from shared.errors import FailedPrecondition, NotFound
from shared.events.workload import WorkloadAdmitted
from tests.integration.bus.conftest import Connect, Serve
from tests.integration.bus.test_settle import Admitted, a_fact, publish
from tests.support.bus import kept
from tests.support.servers import NatsServer
from tests.support.wait import eventually


def a_letter(sequence: int = 1, **values: object) -> DeadLetter:
    fields: dict[str, object] = {
        "service": "deployer", "handler": "on_workload_admitted", "subject": "gpubus.evt.workload.admitted.v1.default.w",
        "stream": "FACTS_SCHEDULER", "stream_sequence": sequence, "code": "Unavailable", "reason": "away", "attempts": 8,
        "first_time": "2026-01-01T00:00:00+00:00", "last_time": "2026-01-01T00:00:09+00:00", "data": b"{}",
    }  # fmt: skip
    return DeadLetter(**(fields | values))  # type: ignore[arg-type]


async def test_a_letter_is_listed_as_it_was_stored(server: NatsServer, connect: Connect):
    bus = await connect(server, "admin")

    await bury(bus.connection, a_letter(reason="two\nlines", headers={"traceparent": "00-1-2-01", "x-other": "no"}))

    (letter,) = await letters(bus.connection)
    assert (letter.handler, letter.attempts, letter.data, letter.redriven) == ("on_workload_admitted", 8, b"{}", ())
    assert letter.headers == {"traceparent": "00-1-2-01"}
    assert letter.reason.split() == ["two", "lines"]


async def test_letters_can_be_listed_by_service(server: NatsServer, connect: Connect):
    bus = await connect(server, "admin")
    await bury(bus.connection, a_letter(1))
    await bury(bus.connection, a_letter(2, service="kvcache"))

    assert [letter.service for letter in await letters(bus.connection)] == ["deployer", "kvcache"]
    assert [letter.service for letter in await letters(bus.connection, "kvcache")] == ["kvcache"]


async def test_burying_the_same_message_twice_is_one_letter(server: NatsServer, connect: Connect):
    bus = await connect(server, "admin")

    await bury(bus.connection, a_letter())
    await bury(bus.connection, a_letter())

    assert len(await letters(bus.connection)) == 1


async def test_bytes_too_large_to_keep_leave_their_digest(server: NatsServer, connect: Connect):
    bus = await connect(server, "admin")

    await bury(bus.connection, a_letter(data=b"x" * (8 * 1024 * 1024)))

    (letter,) = await letters(bus.connection)
    assert letter.data == b""
    assert letter.truncated.startswith("8388608 bytes, sha256 ")
    with pytest.raises(NotFound, match="too large"):
        await redrive(bus.connection, letter.sequence, "id-2")


async def test_a_redrive_reaches_only_its_handler_under_a_new_id_and_marks_the_letter(
    server: NatsServer, connect: Connect, serve: Serve
):
    broken = True

    async def act(*_: object) -> None:
        if broken:
            raise FailedPrecondition("not yet")

    handlers, other = Admitted(act), OtherService()
    await serve(server, handlers)
    await serve(server, other, "modelstore")
    bus = await connect(server, "admin")
    await publish(bus, a_fact())
    (letter,) = await eventually(lambda: letters(bus.connection))

    broken = False
    await redrive(bus.connection, letter.sequence, "id-2")

    await eventually(lambda: len(handlers.seen) == 2)
    again = handlers.seen[1]
    assert (again.message_id, again.subject, again.attempt) == ("id-2", letter.subject, 1)
    assert again.correlation_id == "op-1"
    (marked,) = await letters(bus.connection)
    assert (marked.sequence, marked.redriven) == (letter.sequence, ("id-2",))
    assert len(await kept(server, subjects.owner_stream("scheduler"))) == 1
    await eventually(lambda: no_commands(server))
    assert [ctx.message_id for ctx in other.seen] == ["m1"]


async def test_a_redrive_that_fails_again_is_another_letter(server: NatsServer, connect: Connect, serve: Serve):
    async def act(*_: object) -> None:
        raise FailedPrecondition("never")

    await serve(server, Admitted(act))
    bus = await connect(server, "admin")
    await publish(bus, a_fact())
    (letter,) = await eventually(lambda: letters(bus.connection))

    await redrive(bus.connection, letter.sequence, "id-2")

    async def two() -> list[DeadLetter] | None:
        found = await letters(bus.connection)
        return found if len(found) == 2 else None

    old, new = await eventually(two)
    assert old.redriven == ("id-2",)
    assert (new.handler, new.subject, new.redriven) == (old.handler, old.subject, ())


async def test_a_redrive_of_an_unknown_number_is_not_found(server: NatsServer, connect: Connect):
    bus = await connect(server, "admin")

    with pytest.raises(NotFound):
        await redrive(bus.connection, 7, "id-2")


async def test_a_redrive_to_a_handler_that_is_gone_is_a_dead_letter(server: NatsServer, connect: Connect, serve: Serve):
    await serve(server, Admitted())
    bus = await connect(server, "admin")
    await bury(bus.connection, a_letter(handler="on_nothing_any_more"))

    await redrive(bus.connection, 1, "id-2")

    async def found() -> list[DeadLetter]:
        return [letter for letter in await letters(bus.connection) if not letter.redriven]

    (letter,) = await eventually(found)
    assert (letter.handler, letter.code) == ("on_nothing_any_more", "Malformed")


class OtherService:
    def __init__(self) -> None:
        self.seen: list[MessageContext] = []

    @on(WorkloadAdmitted)
    async def on_workload_admitted(self, fact: WorkloadAdmitted, ctx: MessageContext) -> None:
        self.seen.append(ctx)


async def no_commands(server: NatsServer) -> bool:
    return await kept(server, subjects.STREAM_COMMANDS) == []
