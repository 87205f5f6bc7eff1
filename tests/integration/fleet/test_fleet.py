"""Simulated nodes behave like real ones: they join, break, fall silent, return, and survive their process."""

from __future__ import annotations

from services.discovery.domain.lifecycle import reason_of
from shared.resources.device import Devices
from tests.integration.fleet.conftest import CARDS
from tests.support.wait import eventually


async def cards(house, node: str) -> dict[str, bool]:
    document = await house.store.get("Devices", "", node)
    groups = document.read(Devices).spec.groups if document else []
    return {card.id: card.status.unhealthy for group in groups for card in group.accelerators}


async def reason(house, node: str) -> str:
    found = await house.node(node)
    return reason_of(found) if found else ""


async def test_the_nodes_of_the_file_join_with_their_cards(house, fleet):
    house.controller().start().ready()
    fleet.write(
        {"name": "a10g", "count": 3, "labels": {"zone": "z1"}, "devices": [{**CARDS, "count": 4}]},
        {"name": "plain", "arch": "arm64"},
    )
    fleet.child.start().ready()

    await eventually(lambda: house.all_ready(["a10g-0", "a10g-1", "a10g-2", "plain"]))
    await eventually(lambda: house.count("DeviceFound") == 12)
    node, plain = await house.node("a10g-1"), await house.node("plain")

    assert node.metadata.labels["gpubus.io/simulated"] == "true"
    assert node.metadata.labels["zone"] == "z1"
    assert node.status.capacity == {"cpu": "32", "memory": "128Gi", "nvidia.com/gpu": "4"}
    assert node.status.runtimes == ["simulated"]
    assert plain.metadata.labels["kubernetes.io/arch"] == "arm64"
    assert len({identity for name in ("a10g-0", "a10g-1", "a10g-2") for identity in await cards(house, name)}) == 12


async def test_a_fleet_killed_and_started_again_is_the_same_fleet(house, fleet):
    controller = house.controller().start().ready()
    fleet.write({"name": "n", "count": 5, "devices": [{**CARDS, "count": 2}]})
    fleet.child.start().ready()
    names = [f"n-{i}" for i in range(5)]
    await eventually(lambda: house.count("DeviceFound") == 10)
    before = [await cards(house, name) for name in names]

    fleet.child.kill()
    fleet.child.start().ready()
    await eventually(lambda: house.all_ready(names))

    assert [await cards(house, name) for name in names] == before
    assert [line["reason"] for line in controller.logged("node_claimed")].count("Restarted") == 5
    assert house.count("NodeLost") == house.count("DeviceLost") == 0


async def test_faults_come_and_go_with_the_file(house, fleet):
    house.controller().start().ready()
    node = {"name": "n", "count": 4, "devices": [{**CARDS, "count": 2}]}
    fleet.write(node)
    fleet.child.start().ready()
    await eventually(lambda: house.count("DeviceFound") == 8)

    fleet.write(
        node,
        faults=[{"node": "n-0", "device": 1, "unhealthy": "xid 48"}, {"node": "n-1", "device": 0, "missing": True}],
    )
    fleet.reread()
    await eventually(lambda: house.count("DeviceDegraded") == 1 and house.count("DeviceLost") == 1)
    assert (await house.node("n-0")).status.capacity["nvidia.com/gpu"] == "1"

    fleet.write(node, faults=[{"node": "n-2", "silent": True}])
    fleet.reread()
    await eventually(lambda: house.count("DeviceChanged") == 1 and house.count("DeviceFound") == 9)
    await eventually(lambda: house.count("NodeLost", "n-2") == 1)
    assert await reason(house, "n-2") == "NodeSilent"

    fleet.write(node)
    fleet.reread()
    await eventually(lambda: house.count("NodeReturned", "n-2") == 1)
    await eventually(lambda: house.all_ready(["n-0", "n-1", "n-2", "n-3"]))


async def test_nodes_are_added_and_taken_away_with_the_file(house, fleet):
    house.controller().start().ready()
    fleet.write({"name": "n", "count": 4})
    fleet.child.start().ready()
    await eventually(lambda: house.all_ready([f"n-{i}" for i in range(4)]))

    fleet.write({"name": "n", "count": 3}, {"name": "more", "devices": [CARDS]})
    fleet.reread()

    await eventually(lambda: house.all_ready(["more"]))
    await eventually(lambda: house.count("NodeLost", "n-3") == 1)

    fleet.write({"name": "n", "count": 4})
    fleet.reread()
    await eventually(lambda: house.count("NodeReturned", "n-3") == 1)


async def test_a_wrong_file_changes_nothing_and_does_not_start(house, fleet):
    house.controller().start().ready()
    fleet.write({"name": "n", "count": 2})
    fleet.child.start().ready()

    fleet.write({"name": "n", "count": "two"})
    fleet.reread()
    await eventually(lambda: fleet.child.logged("fleet_file_refused"))
    assert fleet.child.running
    await eventually(lambda: house.all_ready(["n-0", "n-1"]))

    fleet.child.kill()
    assert fleet.child.start().ended() == 1
    assert "nodes[0].count" in fleet.child.log_path.read_text()


async def test_a_silent_fleet_is_a_crowd_and_no_loss(house, fleet):
    controller = house.controller().start().ready()
    fleet.write({"name": "n", "count": 6})
    fleet.child.start().ready()
    await eventually(lambda: house.all_ready([f"n-{i}" for i in range(6)]))

    fleet.child.kill()
    await eventually(lambda: controller.metric('gpubus_nodes{state="unknown"}') == 6)

    assert house.count("NodeLost") == 0
    fleet.child.start().ready()
    await eventually(lambda: controller.metric('gpubus_nodes{state="unknown"}') == 0)
    assert house.count("NodeLost") == 0
