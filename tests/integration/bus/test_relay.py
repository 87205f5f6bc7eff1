"""The relay on real servers: order, crashes at its two dangerous places, streams that lost something, frozen copies."""

from __future__ import annotations

import asyncio
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
from nats.js.manager import JetStreamManager

from shared import subjects
from shared.bus.client import BusClient
from shared.bus.context import MessageContext
from shared.bus.dead_letter import letters
from shared.bus.relay import Relay
from shared.bus.router import command, on
from shared.bus.streams import migrate
from shared.commands.workload import SubmitWorkload
from shared.events.workload import WorkloadAdmitted, WorkloadQueued
from shared.messages.base import Command, Fact
from shared.store.client import Store
from shared.store.documents import Commit, Put
from shared.store.outbox import Outbox
from shared.telemetry.tracing import Cause, caused_by
from tests.integration.bus.conftest import CLOCK, Connect, Serve, Spawn
from tests.support.bus import Child, kept
from tests.support.servers import NatsServer, RedisServer
from tests.support.wait import eventually

FACTS = subjects.owner_stream("scheduler")
RELAY = ("-m", "tests.support.small_service")


def fact(number: int) -> WorkloadQueued:
    return WorkloadQueued(namespace="default", name=f"w{number}", uid="u")


def order(number: int) -> SubmitWorkload:
    return SubmitWorkload(namespace="default", name=f"c{number}", uid="u", spec={})


async def commit(store: Store, *messages: Fact | Command) -> None:
    facts = tuple(m for m in messages if isinstance(m, Fact))
    await store.commit(Commit(facts=facts, commands=tuple(m for m in messages if isinstance(m, Command))))


async def published(server: NatsServer, stream: str = FACTS) -> list[str]:
    return [message.envelope["data"]["name"] for message in await kept(server, stream)]


def names(count: int, first: int = 0) -> list[str]:
    return [f"w{number}" for number in range(first, count)]


class Running:
    """A relay in this process."""

    def __init__(self, store: Store, bus: BusClient) -> None:
        self.relay = Relay(store, bus, CLOCK)
        self.task = asyncio.ensure_future(self.relay.run())

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.wait({self.task})


@pytest.fixture
async def relaying(connect: Connect):
    running: list[Running] = []

    async def make(server: NatsServer, store: Store) -> Running:
        running.append(Running(store, await connect(server)))
        return running[-1]

    yield make
    for one in running:
        await one.stop()


@pytest.fixture
def relay_child(spawn: Spawn, redis: RedisServer, tmp_path: Path):
    def make(server: NatsServer, instance: str = "child", **more: str) -> Child:
        return spawn(
            *RELAY, nats_url=server.url, redis_url=redis.url, instance=instance, data_dir=str(tmp_path), **more
        )

    return make


async def drained(store: Store) -> bool:
    return await Outbox(store).depth() == 0


async def test_facts_arrive_in_order_in_envelopes_with_their_revision(server: NatsServer, store: Store, relaying: Any):
    await relaying(server, store)
    body = {"metadata": {"name": "w0", "namespace": "default"}}

    with caused_by(Cause("op-1", "m-1", "")):
        done = await store.commit(Commit(puts=(Put("Workload", "default", "w0", body, None),), facts=(fact(0),)))
    for number in range(1, 300):
        await commit(store, fact(number))

    await eventually(lambda: drained(store))
    assert await published(server) == names(300)
    first = (await kept(server, FACTS))[0]
    envelope = first.envelope
    assert envelope["id"] == first.headers["Nats-Msg-Id"]
    assert envelope["id"].startswith(f"{store.epoch}.")
    assert envelope["resourceversion"] == str(done.revisions[0])
    assert (envelope["type"], envelope["source"]) == ("gpubus.workload.queued.v1", "/services/scheduler/one")
    assert (envelope["correlationid"], envelope["causationid"], envelope["epoch"]) == ("op-1", "m-1", store.epoch)


async def test_commands_go_to_their_service(server: NatsServer, store: Store, relaying: Any, serve: Serve):
    seen: list[str] = []

    class Obeys:
        @command(SubmitWorkload)
        async def submit_workload(self, message: SubmitWorkload, ctx: MessageContext) -> None:
            seen.append(message.name)

    await relaying(server, store)
    await serve(server, Obeys(), "scheduler")

    for number in range(20):
        await commit(store, order(number), fact(number))

    await eventually(lambda: len(seen) == 20)
    assert seen == [f"c{n}" for n in range(20)]
    await eventually(lambda: drained(store))
    assert await published(server) == names(20)


async def test_nats_away_while_commits_go_on_loses_nothing(own_server: NatsServer, store: Store, relaying: Any):
    await relaying(own_server, store)
    await commit(store, fact(0))
    await eventually(lambda: drained(store))

    own_server.kill()
    for number in range(1, 20):
        await commit(store, fact(number))
    own_server.start()

    await eventually(lambda: drained(store), timeout=20)
    assert await published(own_server) == names(20)


@pytest.mark.parametrize("place", ["relay.before-publish", "relay.after-publish"])
async def test_a_relay_killed_at_a_dangerous_place_loses_and_doubles_nothing(
    server: NatsServer, store: Store, relay_child: Any, tmp_path: Path, place: str
):
    flag = tmp_path / "flag"
    flag.touch()
    for number in range(50):
        await commit(store, fact(number), order(number))

    first = relay_child(server, faults=f"{place}=kill@{flag}")
    assert first.wait() == -signal.SIGKILL
    relay_child(server)

    await eventually(lambda: drained(store), timeout=15)
    # The child obeys the 50 orders too, and commits the fact of each.
    await eventually(lambda: done(tmp_path, 50), timeout=15)
    await eventually(lambda: drained(store))
    assert [name for name in await published(server) if name.startswith("w")] == names(50)
    obeyed = [name for name in await published(server) if name.startswith("c")]
    assert sorted(obeyed) == sorted(f"c{n}" for n in range(50))


async def forget_ids(admin: BusClient) -> None:
    """Let the stream forget message ids after a tenth of a second, as if everything took longer than two minutes."""
    manager = JetStreamManager(admin.connection)
    config = (await manager.stream_info(FACTS)).config
    config.duplicate_window = 0.1
    await manager.update_stream(config)


def done(directory: Path, count: int) -> bool:
    path = directory / "done"
    return path.exists() and len(set(path.read_text().split())) == count


async def test_an_unacknowledged_batch_is_not_doubled_after_the_duplicate_window(
    server: NatsServer, store: Store, relay_child: Any, connect: Connect, tmp_path: Path
):
    await forget_ids(await connect(server, "admin"))
    flag = tmp_path / "flag"
    flag.touch()
    for number in range(10):
        await commit(store, fact(number))
    assert relay_child(server, faults=f"relay.after-publish=kill@{flag}").wait() == -signal.SIGKILL
    assert await published(server) == names(10)
    await asyncio.sleep(0.3)  # past the window, so that only what the stream itself says can help

    relay_child(server)

    await eventually(lambda: drained(store), timeout=15)
    await commit(store, fact(10))
    await eventually(lambda: drained(store))
    assert await published(server) == names(11)


async def test_a_lost_stream_is_filled_again(server: NatsServer, store: Store, relaying: Any, connect: Connect):
    running = await relaying(server, store)
    for number in range(10):
        await commit(store, fact(number))
    await eventually(lambda: drained(store))
    await running.stop()

    await JetStreamManager((await connect(server, "admin")).connection).delete_stream(FACTS)
    await relaying(server, store)
    await commit(store, fact(10))
    await asyncio.sleep(0.6)  # it must wait for the migrator, not fail
    await migrate(server.url)

    await eventually(lambda: drained(store), timeout=15)
    assert await published(server) == names(11)


@pytest.mark.parametrize("running", [True, False], ids=["relay-runs", "relay-restarts"])
async def test_an_older_copy_of_the_bus_gets_what_it_is_missing_exactly_once(
    own_server: NatsServer, store: Store, relaying: Any, tmp_path: Path, *, running: bool
):
    first = await relaying(own_server, store)
    for number in range(5):
        await commit(store, fact(number), order(number))
    await eventually(lambda: drained(store))
    own_server.stop()
    shutil.copytree(own_server.store_directory, tmp_path / "older")
    own_server.start()
    for number in range(5, 12):
        await commit(store, fact(number), order(number))
    await eventually(lambda: drained(store), timeout=15)
    assert await published(own_server) == names(12)

    if not running:
        await first.stop()
    own_server.kill()
    shutil.rmtree(own_server.store_directory)
    shutil.copytree(tmp_path / "older", own_server.store_directory)
    own_server.start()
    if not running:
        await relaying(own_server, store)

    await eventually(lambda: has(own_server, 12), timeout=20)
    await commit(store, fact(12), order(12))
    await eventually(lambda: has(own_server, 13), timeout=15)
    assert await published(own_server) == names(13)
    assert await published(own_server, subjects.STREAM_COMMANDS) == [f"c{n}" for n in range(13)]


async def test_commands_that_only_the_bus_lost_are_sent_again(
    own_server: NatsServer, store: Store, relaying: Any, tmp_path: Path
):
    await relaying(own_server, store)
    await commit(store, fact(0), order(0))
    await eventually(lambda: drained(store))
    own_server.stop()
    shutil.copytree(own_server.store_directory, tmp_path / "older")
    own_server.start()
    await commit(store, order(1))
    await eventually(lambda: drained(store), timeout=15)

    own_server.kill()
    shutil.rmtree(own_server.store_directory)
    shutil.copytree(tmp_path / "older", own_server.store_directory)
    own_server.start()

    async def both() -> bool:
        return await published(own_server, subjects.STREAM_COMMANDS) == ["c0", "c1"]

    await eventually(both, timeout=15)
    assert await published(own_server) == names(1)


async def has(server: NatsServer, count: int) -> bool:
    return len(await published(server)) >= count and len(await published(server, subjects.STREAM_COMMANDS)) >= count


async def test_a_frozen_copy_that_wakes_up_doubles_nothing(
    server: NatsServer, store: Store, relay_child: Any, connect: Connect, tmp_path: Path
):
    await forget_ids(await connect(server, "admin"))
    flag = tmp_path / "flag"
    frozen = relay_child(server, "frozen", faults=f"relay.sending=stop@{flag}")
    await eventually(lambda: frozen.said("lease_acquired"), timeout=15)
    flag.touch()
    for number in range(20):
        await commit(store, fact(number))
    await eventually(lambda: not flag.exists())

    relay_child(server, "other")
    await eventually(lambda: drained(store), timeout=15)
    await asyncio.sleep(0.3)  # past the window in which ids help
    frozen.send(signal.SIGCONT)
    for number in range(20, 40):
        await commit(store, fact(number))

    await eventually(lambda: frozen.said("lease_lost"), timeout=15)
    await eventually(lambda: drained(store), timeout=15)
    assert await published(server) == names(40)


async def test_two_copies_take_turns(server: NatsServer, store: Store, relay_child: Any):
    copies = [relay_child(server, "a"), relay_child(server, "b")]
    for number in range(50):
        await commit(store, fact(number))
    await eventually(lambda: drained(store), timeout=15)

    holder = await eventually(lambda: next((c for c in copies if c.said("lease_acquired")), None))
    holder.send(signal.SIGKILL)
    for number in range(50, 100):
        await commit(store, fact(number))

    await eventually(lambda: drained(store), timeout=15)
    assert await published(server) == names(100)


async def test_an_entry_the_bus_refuses_for_good_is_parked_and_the_rest_go_on(
    server: NatsServer, store: Store, relaying: Any, connect: Connect
):
    bus = await connect(server, "admin")
    manager = JetStreamManager(bus.connection)
    config = (await manager.stream_info(FACTS)).config
    config.max_msg_size = 4000
    await manager.update_stream(config)
    large = WorkloadQueued(namespace="default", name="large", uid="u", message="x" * 5000)

    await commit(store, fact(0))
    await commit(store, large)
    await commit(store, fact(1), fact(2))
    await relaying(server, store)

    await eventually(lambda: drained(store), timeout=15)
    assert await published(server) == names(3)
    (letter,) = await letters(bus.connection)
    assert (letter.service, letter.handler, letter.code) == ("scheduler", "relay", "TooLarge")
    assert b'"large"' in letter.data


async def test_the_journey_from_commit_to_handler_keeps_its_correlation(
    server: NatsServer, store: Store, relaying: Any, serve: Serve
):
    seen: list[MessageContext] = []

    class Listens:
        @on(WorkloadAdmitted)
        async def on_workload_admitted(self, admitted: WorkloadAdmitted, ctx: MessageContext) -> None:
            seen.append(ctx)

    await relaying(server, store)
    await serve(server, Listens())

    with caused_by(Cause("op-7", "cmd-1", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")):
        await commit(store, WorkloadAdmitted(namespace="default", name="w", uid="u"))

    await eventually(lambda: seen)
    assert (seen[0].correlation_id, seen[0].causation_id) == ("op-7", "cmd-1")
    assert seen[0].resource_version > 0
