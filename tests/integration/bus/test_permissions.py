"""Least privilege, proved on a server that runs the generated configuration."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import nkeys
import pytest

from shared import subjects
from shared.bus import jetstream, wire
from shared.bus.broker import RouterRunner
from shared.bus.client import BusClient
from shared.bus.connection import Request, ask
from shared.bus.dead_letter import letters
from shared.bus.permissions import nats_config
from shared.bus.relay import Relay
from shared.bus.router import Router, report, user_command
from shared.bus.streams import migrate
from shared.errors import GpubusError, PermissionDenied, Unavailable
from shared.events.workload import WorkloadAdmitted, WorkloadQueued
from shared.queries import ClaimNode, Heartbeat, LogAnswer, ReadLog
from shared.reports import NodeReported, PodsReported
from shared.store.client import Store
from shared.store.documents import Commit
from shared.store.outbox import Outbox
from tests.integration.bus.conftest import CLOCK
from tests.integration.bus.test_client import QUESTION, Explains
from tests.integration.bus.test_settle import Admitted, a_fact
from tests.support.servers import NatsServer
from tests.support.wait import eventually

As = Callable[..., Awaitable[BusClient]]
USERS = (*subjects.SERVICES, "admin", "fleet", "node-n1", "node-n.2", "ada", "bob")


class Guarded:
    """A server with users; `seeds` are files."""

    def __init__(self, directory: Path) -> None:
        self.seeds: dict[str, Path] = {}
        keys: dict[str, str] = {}
        for user in USERS:
            seed = bytes(nkeys.encode_seed(os.urandom(32), nkeys.PREFIX_BYTE_USER))
            self.seeds[user] = directory / f"{user}.seed"
            self.seeds[user].write_bytes(seed)
            keys[user] = bytes(nkeys.from_seed(bytearray(seed)).public_key).decode()
        config = nats_config(keys, fleet_nodes=["s-0", "s-1"], principals=["ada", "bob"])
        self.server = NatsServer(config)
        self.server.start()


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory):
    guarded = Guarded(tmp_path_factory.mktemp("seeds"))
    yield guarded
    guarded.server.close()


@pytest.fixture
async def act_as(guarded: Guarded) -> AsyncIterator[As]:
    await migrate(guarded.server.url, guarded.seeds["admin"])
    async with AsyncExitStack() as stack:

        async def make(user: str) -> BusClient:
            bus = await BusClient.connect(url=guarded.server.url, user=user, seed_file=guarded.seeds[user], timeout=5)
            stack.push_async_callback(bus.close, 1.0)
            return bus

        yield make


async def refused(bus: BusClient, subject: str, data: bytes = b"{}") -> bool:
    """Whether the server refuses to let this user publish there."""
    try:
        await ask(bus.connection, Request(subject, data, 0.3))
    except PermissionDenied:
        return True
    except GpubusError:
        return False
    return False


async def deaf(bus: BusClient, subject: str) -> bool:
    """Whether the server refuses to let this user listen there."""
    bus.connection.failure = ""
    await bus.connection.subscribe(subject)
    await bus.connection.flush()
    wanted = f'permissions violation for subscription to "{subject.lower()}"'
    for _ in range(25):
        if wanted in bus.connection.failure:
            return True
        await asyncio.sleep(0.02)
    return False


async def test_a_wrong_key_and_no_key_are_not_let_in(guarded: Guarded, tmp_path: Path):
    stranger = tmp_path / "stranger.seed"
    stranger.write_bytes(bytes(nkeys.encode_seed(os.urandom(32), nkeys.PREFIX_BYTE_USER)))

    for seed in (stranger, None):
        with pytest.raises(Unavailable):
            await BusClient.connect(url=guarded.server.url, user="scheduler", seed_file=seed, timeout=0.7)


async def test_a_service_publishes_its_own_facts_and_no_other_owners(act_as: As):
    scheduler = await act_as("scheduler")
    own = subjects.fact(WorkloadQueued, "default", "w")

    assert (await jetstream.publish(scheduler.connection, own, b"{}", {})).sequence
    for other in (
        "gpubus.evt.node.joined.v1._.n",
        "gpubus.evt.deployment.applied.v1.d.n",
        "gpubus.evt.key.revoked.v1.d.n",
    ):
        assert await refused(scheduler, other)
    assert await refused(await act_as("deployer"), own)


async def test_a_service_does_not_administer_streams(act_as: As):
    scheduler = await act_as("scheduler")

    for call in ("STREAM.CREATE.X", "STREAM.DELETE.FACTS_SCHEDULER", "STREAM.PURGE.FACTS_SCHEDULER", "STREAM.NAMES"):
        assert await refused(scheduler, f"$JS.API.{call}")
    assert await refused(scheduler, "$JS.API.CONSUMER.CREATE.FACTS_DISCOVERY")
    assert await refused(scheduler, "$JS.API.CONSUMER.MSG.NEXT.FACTS_SCHEDULER.deployer-on-workload-admitted")
    assert await refused(scheduler, "$JS.ACK.FACTS_SCHEDULER.deployer-on-workload-admitted.1.1.1.1.1")


async def test_a_service_neither_reports_nor_hears_others_inboxes(act_as: As):
    scheduler = await act_as("scheduler")

    assert await refused(scheduler, subjects.report(NodeReported, "n1"))
    for subject in ("_INBOX_deployer.>", "_INBOX.>", "gpubus.>", ">", "gpubus.qry.deployer.>"):
        assert await deaf(scheduler, subject)


async def test_a_node_reports_for_itself_and_no_other(act_as: As):
    for node, other in (("n1", "n.2"), ("n.2", "n1")):
        agent = await act_as(f"node-{node}")

        await agent.report(NodeReported(node=node, incarnation="i", sequence=1))
        with pytest.raises(PermissionDenied):
            await agent.report(NodeReported(node=other, incarnation="i", sequence=1), timeout=0.5)
        assert await refused(agent, subjects.telemetry(Heartbeat, other))
        assert await refused(agent, subjects.query(ClaimNode, other))
        assert await deaf(agent, subjects.wake(other))


async def test_agents_have_no_jetstream_api_and_no_facts(act_as: As):
    agent = await act_as("node-n1")

    for subject in (
        "$JS.API.INFO",
        "$JS.API.STREAM.INFO.REPORTS",
        "$JS.API.CONSUMER.MSG.NEXT.REPORTS.discovery-on-node-reported",
    ):
        assert await refused(agent, subject)
    assert await refused(agent, subjects.fact(WorkloadQueued, "a", "b"))
    assert await refused(agent, subjects.write_object("deployer", "a", "b"))
    assert await deaf(agent, "gpubus.evt.>")


async def test_the_fleet_speaks_for_its_nodes_only(act_as: As):
    fleet = await act_as("fleet")

    await fleet.report(PodsReported(node="s-1", incarnation="i", sequence=1, epoch="e"))
    with pytest.raises(PermissionDenied):
        await fleet.report(PodsReported(node="n1", incarnation="i", sequence=1, epoch="e"), timeout=0.5)
    assert not await deaf(fleet, subjects.wake("s-0"))


async def test_a_user_commands_as_itself_only_and_listens_to_facts(act_as: As):
    ada = await act_as("ada")

    assert not await refused(ada, subjects.user_apply("ada", "default", stored=False))
    assert not await refused(ada, subjects.user_apply("ada", "", stored=True))
    assert await refused(ada, subjects.user_apply("bob", "default", stored=False))
    assert await refused(ada, subjects.write_object("deployer", "default", "m"))
    assert await refused(ada, subjects.fact(WorkloadQueued, "a", "b"))
    assert not await deaf(ada, "gpubus.evt.>")
    assert await deaf(ada, "_INBOX_bob.>")


async def test_everything_a_controller_does_is_permitted(guarded: Guarded, act_as: As, store: Store):
    scheduler, deployer, gateway = [await act_as(user) for user in ("scheduler", "deployer", "gateway")]
    handlers, explains = Admitted(), Explains()
    runners = []
    for bus, taken in ((scheduler, explains), (deployer, handlers)):
        router = Router(bus.user)
        router.include(taken)
        runners.append(RouterRunner(bus, router, CLOCK))
        await runners[-1].start()
    relay = Relay(store, scheduler, CLOCK)
    running = asyncio.ensure_future(relay.run())

    async def empty() -> bool:
        return await Outbox(store).depth() == 0

    await store.commit(Commit(facts=(a_fact(),)))
    await eventually(lambda: handlers.seen)
    assert (await gateway.ask(QUESTION)).reason == "Full"
    await deployer.wake("n1", 3)
    await eventually(empty)
    running.cancel()
    await asyncio.wait({running})
    for runner in runners:
        await runner.stop()
    assert not any("permissions violation" in bus.connection.failure.lower() for bus in (scheduler, deployer, gateway))


async def test_dead_letters_are_permitted_to_their_service(act_as: As):
    deployer, admin = await act_as("deployer"), await act_as("admin")
    router = Router("deployer")
    router.include(Admitted())
    runner = RouterRunner(deployer, router, CLOCK)
    await runner.start()
    scheduler = await act_as("scheduler")

    await jetstream.publish(scheduler.connection, subjects.fact(WorkloadAdmitted, "d", "w"), b"broken", {})

    found = await eventually(lambda: letters(admin.connection, "deployer"))
    assert found[-1].data == b"broken"
    await runner.stop()


async def test_an_agent_answers_and_a_user_is_answered(act_as: As):
    agent, gateway, ada = [await act_as(user) for user in ("node-n1", "gateway", "ada")]

    async def read(question: ReadLog) -> LogAnswer:
        return LogAnswer(text=question.uid)

    class Applies:
        @user_command()
        async def apply(self, order: Any, ctx: Any) -> dict[str, str]:
            return {"by": order.principal}

    await agent.answer(ReadLog, "n1", read)
    await agent.connection.flush()
    router = Router("gateway")
    router.include(Applies())
    runner = RouterRunner(gateway, router, CLOCK)
    await runner.start()
    answers: list[bytes] = []

    async def answered(message: Any) -> None:
        answers.append(message.data)

    await ada.listen("_INBOX_ada.mine", answered)
    headers = {wire.REPLY_TO: "_INBOX_ada.mine"}

    assert (await gateway.ask(ReadLog(node="n1", uid="p"))).text == "p"
    assert await ada.apply("ada", "default", b"kind: Pod") == {"by": "ada"}
    await jetstream.publish(ada.connection, subjects.user_apply("ada", "default", stored=True), b"x", headers)
    await eventually(lambda: answers == [b'{"by":"ada"}'])
    await runner.stop()


async def test_a_report_reaches_its_controller(act_as: As):
    seen: list[NodeReported] = []

    class Takes:
        @report(NodeReported)
        async def on_node_reported(self, reported: NodeReported, ctx: Any) -> None:
            seen.append(reported)

    discovery, agent = await act_as("discovery"), await act_as("node-n1")
    router = Router("discovery")
    router.include(Takes())
    runner = RouterRunner(discovery, router, CLOCK)
    await runner.start()

    await agent.report(NodeReported(node="n1", incarnation="fresh", sequence=1))

    await eventually(lambda: any(reported.incarnation == "fresh" for reported in seen))
    await runner.stop()


async def test_a_removed_user_ends_the_connection_for_good(guarded: Guarded, act_as: As):
    bob = await act_as("bob")
    path = guarded.server.directory / "nats.conf"
    before = path.read_text()
    lines = before.splitlines()
    start = next(number for number, line in enumerate(lines) if line.strip() == "# bob")
    path.write_text("\n".join(lines[:start] + lines[start + 5 :]))

    os.kill(guarded.server.pid, signal.SIGHUP)
    await eventually(lambda: bob.lost.is_set() or not bob.connected)
    path.write_text(before)
    os.kill(guarded.server.pid, signal.SIGHUP)
