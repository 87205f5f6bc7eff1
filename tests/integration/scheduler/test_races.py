"""Writers that meet on one document or one ledger: copies of the scheduler, discovery beside it, reports out of order."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from services.scheduler.store.writes import ATTEMPTS, commit, decided
from shared.clock import SystemClock
from shared.errors import Raced
from shared.events.device import DeviceFound, NodeJoined
from shared.reports import PodState
from shared.store.cache import DocumentCache
from shared.store.client import Store
from shared.store.documents import Commit, Delete, Document, Put, Require
from shared.subjects import STREAM_DEAD_LETTERS
from tests.integration.scheduler.conftest import A10G_POOL, House, a_pod, devices_body, node_body
from tests.support.wait import eventually


async def dead_letters(house: House) -> int:
    info = await house.bus.connection.jetstream().stream_info(STREAM_DEAD_LETTERS)
    return info.state.messages


async def handled(house: House, handler: str, message_id: str) -> None:
    """Some copy has taken a message to its end."""
    await eventually(
        lambda: any(
            line.get("handler") == handler and line.get("message_id") == message_id and line["outcome"] == "handled"
            for child in house.children
            for line in child.logged("message_handled")
        ),
        timeout=30,
    )


async def test_devices_that_discovery_makes_at_the_same_time_end_no_fact_in_the_dead_letters(house: House):
    for copy in ("scheduler-1", "scheduler-2"):
        house.scheduler(copy).start()
    for child in house.children:
        child.ready()
    names = [f"n{index}" for index in range(24)]

    async def appear(number: int, name: str) -> None:
        """The report first, or the node first; its Devices at once, or while the scheduler makes them."""
        if number % 2:
            await house.report(name)
        put = Put("Node", "", name, node_body(name), None)
        await house.commit("discovery", Commit(puts=(put,), facts=(NodeJoined(name=name, uid=f"node-{name}"),)))
        if not number % 2:
            await house.report(name)
        await asyncio.sleep(number % 5 * 0.01)
        await find_cards(house, name)

    await asyncio.gather(*(appear(*item) for item in enumerate(names)))

    for name in names:
        await eventually(lambda name=name: house.is_confirmed(name), timeout=30)
        found = await house.store.get("Devices", "", name)
        assert found is not None
        assert len(found.body["spec"]["groups"][0]["accelerators"]) == 1

    async def formed() -> bool:
        kind = await house.store.get("InstanceType", "", A10G_POOL)
        view = kind.body["status"].get("accelerator") or {} if kind else {}
        return (view.get("capacity"), view.get("remaining")) == (24, 24)

    await eventually(formed, timeout=30)
    assert await dead_letters(house) == 0


async def find_cards(house: House, name: str) -> None:
    """As discovery: reads, puts its part in, and again when somebody else was faster."""
    store = house.stores["discovery"]
    while True:
        stored = await store.get("Devices", "", name)
        spec = devices_body(name, 1)["spec"]
        body = {**stored.body, "spec": spec} if stored else devices_body(name, 1)
        put = Put("Devices", "", name, body, stored.revision if stored else None)
        fact = DeviceFound(node=name, device_id=f"{name}-gpu-0", manufacturer="nvidia", product="nvidia-a10g")
        try:
            await commit(store, Commit(puts=(put,), facts=(fact,)))
        except Raced:
            continue
        return


@pytest.mark.parametrize("copies", [1, 2])
async def test_report_that_comes_late_charges_nobody_for_what_has_stopped(house: House, copies: int):
    for number in range(copies):
        house.scheduler(f"scheduler-{number}").start()
    for child in house.children:
        child.ready()
    await house.node("n1", cards=2)
    await house.submit("a", cards=1)
    card = await house.admitted("a")
    index = int(card.cards[0][-1])
    await house.report("n1", a_pod("a", "n1", index), sequence=100)
    await house.report("n1", a_pod("a", "n1", index, phase="Stopped"), sequence=102)
    await handled(house, "on_pods_reported", "deployer.pods.n1.i1._.102")
    await house.cancel("a")

    await eventually(lambda: has_ended(house, "a"), timeout=30)
    for late in (101, 99):
        await house.report("n1", a_pod("a", "n1", index), sequence=late)
        await handled(house, "on_pods_reported", f"deployer.pods.n1.i1._.{late}")

    await settled(house, remaining=2)
    await house.check_ledgers("n1")
    assert await house.ledger("n1") == {}


async def test_views_settle_after_many_reports_and_cancellations_at_two_copies(house: House):
    for copy in ("scheduler-1", "scheduler-2"):
        house.scheduler(copy, GPUBUS_AUDIT_SECONDS="3600").start()
    for child in house.children:
        child.ready()
    await house.node("n1", cards=4)
    names = [f"w{index}" for index in range(4)]
    for name in names:
        await house.submit(name, cards=1)
    cards = {name: int((await house.admitted(name)).cards[0][-1]) for name in names}

    def pods(stopped: int) -> list[PodState]:
        phases = {name: "Stopped" if position < stopped else "Running" for position, name in enumerate(names)}
        return [a_pod(name, "n1", cards[name], phase=phase) for name, phase in phases.items()]

    order = [103, 101, 102, 104, 100]
    reports = [house.report("n1", *pods(sequence - 100), sequence=sequence) for sequence in order]
    await asyncio.gather(*reports, *(house.cancel(name) for name in names))
    for sequence in order:
        await handled(house, "on_pods_reported", f"deployer.pods.n1.i1._.{sequence}")

    for name in names:
        await eventually(lambda name=name: has_ended(house, name), timeout=30)
    await settled(house, remaining=4)
    assert await house.ledger("n1") == {}


async def has_ended(house: House, name: str) -> bool:
    return await house.workload(name) is None


async def settled(house: House, *, remaining: int) -> None:
    """The type shows as many free cards, and the node's Devices no holder and no orphan."""

    async def look() -> bool:
        kind: Document | None = await house.store.get("InstanceType", "", A10G_POOL)
        devices: Document | None = await house.store.get("Devices", "", "n1")
        assert kind is not None
        assert devices is not None
        status = devices.body["status"]
        cards = [card for group in status["groups"] for card in group["accelerators"]]
        assert kind.body["status"]["accelerator"]["remaining"] == remaining
        assert status.get("orphans") in (None, [])
        assert all(card["allocated"] == 0 and not card["holders"] for card in cards)
        return True

    await eventually(look, timeout=30)


async def test_whatever_another_writer_did_first_is_a_race(house: House):
    store = house.stores["discovery"]
    body = node_body("n1")
    await commit(store, Commit(puts=(Put("Node", "", "n1", body, None),)))

    late = [
        Commit(puts=(Put("Node", "", "n1", body, None),)),
        Commit(puts=(Put("Node", "", "n1", body, 1),)),
        Commit(puts=(Put("Node", "", "gone", body, 1),)),
        Commit(deletes=(Delete("Node", "", "gone"),)),
        Commit(puts=(Put("Node", "", "n2", body, None),), requires=(Require.exists("Node", "", "gone"),)),
    ]

    for change in late:
        with pytest.raises(Raced):
            await commit(store, change)
    assert await store.get("Node", "", "n2") is None


async def test_race_is_decided_again_on_what_the_other_wrote(house: House):
    store = house.stores["discovery"]
    cache = DocumentCache(store, ["Node"])
    task = asyncio.ensure_future(cache.run())
    await cache.synced()
    other = await Store.connect(url=house.redis.url, service="discovery", instance="other", clock=SystemClock())
    tries: list[int | None] = []

    async def attempt() -> int:
        """What the view says, written; the other writer comes between the first time."""
        found = cache.get("Node", "", "n1")
        if not tries:
            await commit(other, Commit(puts=(Put("Node", "", "n1", node_body("n1"), None),)))
        tries.append(found.revision if found else None)
        body = found.body if found else node_body("n1")
        done = await commit(store, Commit(puts=(Put("Node", "", "n1", body, tries[-1]),)))
        return done.revisions[-1]

    async def hopeless() -> None:
        tries.append(0)
        raise Raced("it always is")

    try:
        assert await decided(store, cache, attempt) > (tries[-1] or 0)
        assert len(tries) == 2
        assert tries[0] is None
        tries.clear()
        with pytest.raises(Raced):
            await decided(store, cache, hopeless)
        assert len(tries) == ATTEMPTS
    finally:
        task.cancel()
        await other.close()


def test_every_write_of_the_scheduler_goes_through_the_one_place():
    root = Path(__file__).parents[3] / "services" / "scheduler"
    direct = [path.name for path in sorted(root.rglob("*.py")) if "store.commit(" in path.read_text()]

    assert direct == ["writes.py"]
