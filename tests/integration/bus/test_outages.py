"""NATS restarted, killed, frozen: consumers and core subscriptions go on, nothing is lost or sent after the fact."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from shared.bus.client import BusClient
from shared.errors import DeadlineExceeded, Unavailable
from shared.queries import Heartbeat
from tests.integration.bus.conftest import Connect, Serve
from tests.integration.bus.test_client import QUESTION, REPORT, Explains
from tests.integration.bus.test_settle import Admitted, a_fact, publish
from tests.support.servers import NatsServer, free_port
from tests.support.wait import eventually


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
async def test_consumers_go_on_after_the_server_restarted(
    own_server: NatsServer, connect: Connect, serve: Serve, *, clean: bool
):
    handlers = Admitted()
    await serve(own_server, handlers)
    bus = await connect(own_server)
    again: list[bool] = []
    bus.on_reconnect(lambda: again.append(True))
    await publish(bus, a_fact(), "m1")
    await eventually(lambda: len(handlers.seen) == 1)

    own_server.restart(clean=clean)
    await eventually(lambda: again)
    await publish(bus, a_fact(), "m2")

    await eventually(lambda: len(handlers.seen) == 2, timeout=5)
    assert [ctx.message_id for ctx in handlers.seen] == ["m1", "m2"]


async def test_messages_stored_while_no_copy_ran_are_handled_later(
    own_server: NatsServer, connect: Connect, serve: Serve
):
    bus = await connect(own_server)
    for number in range(20):
        await publish(bus, a_fact(), f"m{number}")
    own_server.restart(clean=False)

    handlers = Admitted()
    await serve(own_server, handlers)

    await eventually(lambda: len(handlers.seen) == 20)
    assert [ctx.message_id for ctx in handlers.seen] == [f"m{n}" for n in range(20)]


async def test_a_message_whose_ack_was_lost_comes_again_under_the_same_id(
    own_server: NatsServer, connect: Connect, serve: Serve
):
    taken, proceed = asyncio.Event(), asyncio.Event()

    async def hold(*_: Any) -> None:
        taken.set()
        await proceed.wait()

    handlers = Admitted(hold)
    bus = await connect(own_server)
    await serve(own_server, handlers, bus=bus)
    await publish(bus, a_fact())
    await taken.wait()

    own_server.kill()
    await eventually(lambda: not bus.connected)
    proceed.set()
    await asyncio.sleep(0.1)
    own_server.start()

    await eventually(lambda: len(handlers.seen) == 2, timeout=15)
    assert [ctx.message_id for ctx in handlers.seen] == ["m1", "m1"]


async def test_nothing_is_sent_after_the_fact(own_server: NatsServer, connect: Connect, serve: Serve):
    handlers = Explains()
    await serve(own_server, handlers, "scheduler")
    bus = await connect(own_server, "gateway")
    await bus.ask(QUESTION)

    own_server.kill()
    await eventually(lambda: not bus.connected)
    with pytest.raises(Unavailable):
        await bus.ask(QUESTION)
    with pytest.raises(Unavailable):
        await bus.report(REPORT)
    await bus.tell(Heartbeat(source="n1", incarnation="i"))
    await bus.wake("n1", 1)
    own_server.start()
    await eventually(lambda: bus.connected)

    await eventually(lambda: asks(bus), timeout=10)
    assert len(handlers.seen) == 2


async def asks(bus: BusClient) -> bool:
    """The answerer's connection may come back later than the asker's."""
    try:
        await bus.ask(QUESTION)
    except Unavailable:
        return False
    return True


async def test_a_frozen_server_is_noticed_and_left(own_server: NatsServer, connect: Connect):
    bus = await connect(own_server, "gateway")

    own_server.pause()
    with pytest.raises(DeadlineExceeded):
        await bus.ask(QUESTION, timeout=0.2)
    await eventually(lambda: not bus.connected, timeout=15)
    own_server.resume()

    await eventually(lambda: bus.connected, timeout=15)
    with pytest.raises(Unavailable):
        await bus.ask(QUESTION)


async def test_a_server_that_comes_late_is_waited_for():
    server = NatsServer()
    connecting = asyncio.ensure_future(BusClient.connect(url=server.url, user="scheduler", timeout=10))
    await asyncio.sleep(0.5)

    server.start()
    bus = await connecting

    assert bus.connected
    await bus.close()
    server.close()


async def test_no_server_within_the_patience_is_unavailable_with_its_address():
    port = free_port()

    with pytest.raises(Unavailable, match=str(port)):
        await BusClient.connect(url=f"nats://127.0.0.1:{port}", user="scheduler", timeout=0.5)
