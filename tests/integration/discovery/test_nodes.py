"""Nodes come, change, fall silent, return and go: the real controller, real agents, real servers."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from services.discovery.domain.lifecycle import is_held, is_lost, reason_of
from shared.commands.objects import WriteObject
from shared.errors import from_dict
from shared.reports import NodeReported
from shared.resources.device import Devices
from tests.integration.discovery.conftest import House, hardware
from tests.support.wait import eventually


async def lost(house: House, name: str) -> bool:
    node = await house.node(name)
    return node is not None and is_lost(node)


async def devices(house: House, name: str) -> Devices | None:
    document = await house.store.get("Devices", "", name)
    return document.read(Devices) if document else None


async def write(house: House, verb: str, kind: str, name: str, **more):
    return await house.bus.write("discovery", WriteObject(verb=verb, kind=kind, name=name, **more))


async def test_this_host_joins_without_cards_and_without_noise(house):
    house.controller().start().ready()
    agent = house.host_agent("here").start().ready()

    node = await eventually(lambda: house.node("here"))
    await eventually(lambda: house.is_ready("here"))
    node = await house.node("here")

    assert int(node.status.capacity["cpu"].removesuffix("m")) > 0
    assert node.status.node_info.boot_id
    assert await devices(house, "here") is None
    await eventually(lambda: house.count("NodeJoined", "here") == 1)
    assert agent.logged("measurement_failed") == []


async def test_cards_are_found_degraded_recovered_and_lost(house):
    house.controller().start().ready()
    agent = house.simulated("a10g-0", cards=4)
    await eventually(lambda: house.count("DeviceFound") == 4)
    before = await devices(house, "a10g-0")

    agent.becomes(hardware("a10g-0", 4, unhealthy={1: "xid 48"}))
    await eventually(lambda: house.count("DeviceDegraded") == 1)
    assert (await house.node("a10g-0")).status.capacity["nvidia.com/gpu"] == "3"

    agent.becomes(hardware("a10g-0", 4, unreadable=True))
    await eventually(lambda: agent.agent._failing)
    assert (await house.node("a10g-0")).status.capacity["nvidia.com/gpu"] == "3"

    agent.becomes(hardware("a10g-0", 4))
    await eventually(lambda: house.count("DeviceChanged") == 1)
    assert (await devices(house, "a10g-0")).spec == before.spec

    agent.becomes(hardware("a10g-0", 4, missing=frozenset({2})))
    await eventually(lambda: house.count("DeviceLost") == 1)
    found = await devices(house, "a10g-0")
    assert [card.index for card in found.spec.groups[0].accelerators] == [0, 1, 3]


async def test_nothing_is_written_while_nothing_changes(house):
    house.controller().start().ready()
    agent = house.simulated("n1", cards=2)
    await eventually(lambda: house.count("DeviceFound") == 2)
    node, cards = await house.node("n1"), await devices(house, "n1")

    for _ in range(3):
        agent.agent.nudge()
        await house.bus.report(agent.agent._report(agent.agent._sight))
        await agent.agent.look()
        await asyncio.sleep(0.2)

    assert (await house.node("n1")).revision == node.revision
    assert (await devices(house, "n1")).revision == cards.revision


async def test_a_supervised_restart_of_an_agent_is_accepted_at_once(house):
    controller = house.controller().start().ready()
    agent = house.host_agent("here").start().ready()
    await eventually(lambda: house.is_ready("here"))
    first = (await house.node("here")).status.incarnation

    for _ in range(3):
        agent.kill()
        agent.start().ready()

    node = await house.node("here")
    assert node.status.incarnation != first
    claims = [line["reason"] for line in controller.logged("node_claimed")]
    assert claims == ["First", "Restarted", "Restarted", "Restarted"]
    await eventually(lambda: house.is_ready("here"))
    assert house.count("NodeLost") == house.count("NodeReturned") == 0
    await eventually(lambda: house.count("NodeJoined") == 1)


async def test_a_second_agent_of_one_name_waits_until_the_first_is_silent(house):
    house.controller().start().ready()
    first = house.host_agent("here", "one").start().ready()
    await eventually(lambda: house.is_ready("here"))
    incarnation = (await house.node("here")).status.incarnation

    second = house.host_agent("here", "two").start()
    await eventually(lambda: second.logged("claim_refused"))
    await asyncio.sleep(4)
    assert (await house.node("here")).status.incarnation == incarnation
    assert second.logged("claim_refused")[0]["reason"] == "OtherAgentLives"

    first.kill()
    second.ready()
    assert (await house.node("here")).status.incarnation != incarnation

    first.start()
    await eventually(lambda: first.logged("claim_refused"))


async def test_two_agents_on_one_data_dir_do_not_start(house):
    house.controller().start().ready()
    house.host_agent("here", "one").start().ready()

    other = house.host_agent("here", "one", name="other").start()

    assert other.ended() == 1
    assert "another discovery agent" in other.log_path.read_text()


async def test_a_frozen_agent_is_lost_and_returns(house):
    house.controller().start().ready()
    agent = house.host_agent("here").start().ready()
    await eventually(lambda: house.is_ready("here"))

    agent.send(signal.SIGSTOP)
    await eventually(lambda: house.count("NodeLost", "here") == 1)
    node = await house.node("here")
    assert reason_of(node) == "NodeSilent"

    agent.send(signal.SIGCONT)
    await eventually(lambda: house.count("NodeReturned", "here") == 1)
    await eventually(lambda: house.is_ready("here"))


async def test_one_of_three_is_lost_two_of_four_are_not(house):
    controller = house.controller().start().ready()
    agents = {f"n{i}": house.simulated(f"n{i}") for i in range(4)}
    await eventually(lambda: house.all_ready(list(agents)))

    await agents["n0"].silence()
    await eventually(lambda: house.count("NodeLost", "n0") == 1)
    await asyncio.sleep(3.5)  # what falls later than one time-out does not count with it

    await asyncio.gather(agents["n1"].silence(), agents["n2"].silence())
    await eventually(lambda: controller.metric('gpubus_nodes{state="unknown"}') == 2)
    assert house.count("NodeLost") == 1
    assert is_held(await house.node("n1"))
    assert controller.logged("nodes_unknown")

    agents["n1"].start()
    await eventually(lambda: house.count("NodeLost", "n2") == 1, timeout=15)
    await eventually(lambda: controller.metric('gpubus_nodes{state="unknown"}') == 0)
    assert not is_held(await house.node("n1"))
    assert house.count("NodeLost", "n1") == 0


async def test_a_frozen_controller_loses_nobody(house):
    controller = house.controller().start().ready()
    names = [f"n{i}" for i in range(20)]
    for name in names:
        house.simulated(name)
    await eventually(lambda: house.all_ready(names))
    await asyncio.sleep(3.5)

    controller.send(signal.SIGSTOP)
    await asyncio.sleep(6)
    controller.send(signal.SIGCONT)
    await asyncio.sleep(5)

    assert house.count("NodeLost") == 0
    assert controller.metric('gpubus_nodes{state="unknown"}') == 0
    assert await house.all_ready(names)


async def test_a_bus_that_was_away_loses_nobody(house):
    controller = house.controller().start().ready()
    house.simulated("only", cards=1)
    await eventually(lambda: house.count("DeviceFound") == 1)
    await asyncio.sleep(3.5)

    house.nats.kill()
    await asyncio.sleep(5)
    house.nats.start()
    await eventually(lambda: house.bus.connected)
    controller.ready()
    await asyncio.sleep(4)

    assert house.count("NodeLost") == 0
    assert await house.is_ready("only")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # nats-py leaves the stale socket behind
async def test_a_bus_that_froze_loses_nobody(house):
    house.controller().start().ready()
    house.simulated("only", cards=1)
    await eventually(lambda: house.count("DeviceFound") == 1)
    await asyncio.sleep(3.5)

    house.nats.pause()
    await asyncio.sleep(6)
    house.nats.resume()
    await eventually(lambda: house.bus.connected)
    await asyncio.sleep(4)

    assert house.count("NodeLost") == 0


async def test_a_user_labels_cordons_and_deletes_a_node(house):
    house.controller().start().ready()
    agent = house.simulated("n1", cards=2)
    await eventually(lambda: house.count("DeviceFound") == 2)
    body = (await house.store.get("Node", "", "n1")).json()

    body["metadata"]["labels"]["team"] = "blue"
    body["spec"] = {"unschedulable": True}
    answer = await write(house, "replace", "Node", "n1", object=body)
    assert answer.error is None
    agent.becomes(hardware("n1", 3))
    await eventually(lambda: house.count("DeviceFound") == 3)
    node = await house.node("n1")
    assert node.metadata.labels["team"] == "blue"
    assert node.spec.unschedulable

    body = (await house.store.get("Node", "", "n1")).json()
    body["metadata"]["labels"]["kubernetes.io/os"] = "plan9"
    answer = await write(house, "replace", "Node", "n1", object=body)
    assert from_dict(answer.error).causes[0].field == "metadata.labels[kubernetes.io/os]"

    for verb, kind in (("create", "Node"), ("delete", "Devices"), ("replace", "Devices")):
        answer = await write(house, verb, kind, "n1", object=body)
        assert answer.error["code"] == "Unimplemented"

    await agent.silence()
    answer = await write(house, "delete", "Node", "n1")
    assert answer.error is None
    await eventually(lambda: house.count("NodeRemoved", "n1") == 1 and house.count("DeviceLost") == 3)
    assert await house.node("n1") is None
    assert await devices(house, "n1") is None


async def test_a_deleted_node_whose_agent_lives_comes_back(house):
    house.controller().start().ready()
    agent = house.simulated("n1", cards=1)
    await eventually(lambda: house.count("DeviceFound") == 1)
    agent.agent._reported_at -= 60

    await write(house, "delete", "Node", "n1")
    await eventually(lambda: house.count("DeviceLost") == 1)
    await house.bus.wake("n1", 0)

    await eventually(lambda: house.count("DeviceFound") == 2, timeout=20)
    assert house.count("NodeJoined", "n1") == 2


async def test_late_and_foreign_reports_change_nothing(house):
    controller = house.controller().start().ready()
    agent = house.simulated("n1", cards=1)
    await eventually(lambda: house.count("DeviceFound") == 1)
    incarnation, before = agent.agent.identity.incarnation, await house.node("n1")

    for node, start, number in (("n1", "other", 99), ("n1", incarnation, 0), ("nobody", "x", 1)):
        await house.bus.report(NodeReported(node=node, incarnation=start, sequence=number, capacity={"cpu": "1"}))
    reasons = ("OtherIncarnation", "StaleSequence", "Unclaimed")
    await eventually(lambda: all(controller.metric(f'gpubus_node_reports_total{{reason="{r}"}}') == 1 for r in reasons))

    assert (await house.node("n1")).revision == before.revision


async def test_garbage_on_the_bus_stops_nobody(house):
    controller = house.controller().start().ready()
    house.simulated("n1", cards=1)
    await eventually(lambda: house.count("DeviceFound") == 1)
    js = house.bus.connection.jetstream()

    for body in (b"", b"{", b'{"specversion":"1.0"}', os.urandom(2000)):
        await js.publish("gpubus.rep.discovery.node.v1.n1._", body)
    await house.bus.connection.publish("gpubus.tel.heartbeat.n1", b"\xff\xfe")
    await eventually(lambda: sum(1 for line in controller.logged("message_handled") if line["outcome"] == "dead") >= 0)
    house.simulated("n2", cards=1)

    await eventually(lambda: house.count("NodeJoined", "n2") == 1)
    assert controller.running


async def test_a_host_is_known_by_its_address_on_the_way_to_the_bus(house):
    house.controller().start().ready()
    house.host_agent("here").start().ready()
    await eventually(lambda: house.is_ready("here"))

    addresses = {address.type: address.address for address in (await house.node("here")).status.addresses}

    assert addresses["InternalIP"] == "127.0.0.1"
