"""Block events in, holders out: the index in the real service."""

from __future__ import annotations

import pytest

from services.kvcache.domain.index import PrefixIndex
from services.kvcache.domain.keys import chain
from services.kvcache.loops import forget_gone
from services.kvcache.store import CacheStore
from shared.errors import InvalidArgument
from shared.events.deployment import ReplicaStopped
from shared.queries import CacheBlocks, FindCacheHolders
from tests.support.wait import eventually

TOKENS = list(range(64))
HASHES = chain(TOKENS, 16)


class Engine:
    """One replica that tells what it caches."""

    def __init__(self, room, replica: str) -> None:
        self.room, self.replica, self.sequence = room, replica, 0

    async def tell(self, *, skip: int = 0, **more) -> None:
        self.sequence += 1 + skip
        await self.room.bus.tell(
            CacheBlocks(source="node-a", replica=self.replica, model="m", block_size=16, sequence=self.sequence, **more)
        )


async def holders(room, **question) -> dict[str, int]:
    answer = await room.bus.ask(FindCacheHolders(model="m", block_size=16, **(question or {"token_ids": TOKENS})))
    return {holder.replica: holder.blocks for holder in answer.holders}


async def become(room, expected, **question):
    async def same():
        return await holders(room, **question) == expected or None

    await eventually(same)


async def test_the_warmest_replica_is_found_by_tokens_and_by_hashes(room):
    room.controller().start().ready()
    one, two = Engine(room, "one"), Engine(room, "two")

    await one.tell(stored=[[0, *HASHES[:2]]])
    await two.tell(stored=[[0, *HASHES[:1]], [HASHES[0], *HASHES[1:3]]])

    await become(room, {"two": 3, "one": 2})
    assert await holders(room, block_hashes=HASHES[:1]) == {"one": 1, "two": 1}
    assert await holders(room, token_ids=[9, *TOKENS[1:]]) == {}

    await two.tell(removed=[HASHES[1]])
    await become(room, {"two": 1, "one": 2})
    await one.tell(cleared=True)
    await become(room, {"two": 1})


async def test_a_missed_batch_forgets_the_replica(room):
    room.controller().start().ready()
    one = Engine(room, "one")
    await one.tell(stored=[[0, *HASHES]])
    await become(room, {"one": 4})

    await one.tell(skip=1, stored=[[0, *HASHES[:1]]])

    await become(room, {"one": 1})


async def test_a_stopped_replica_holds_nothing(room):
    room.controller().start().ready()
    one, two = Engine(room, "uid-1"), Engine(room, "uid-2")
    for engine in (one, two):
        await engine.tell(stored=[[0, *HASHES]])
    await become(room, {"uid-1": 4, "uid-2": 4})

    await room.publish(ReplicaStopped(namespace="blue", name="p", uid="uid-1", deployment="d"))

    await become(room, {"uid-2": 4})


async def test_every_copy_knows_everything(room):
    copies = [room.controller(f"kvcache-{n}").start() for n in range(3)]
    for copy in copies:
        copy.ready()
    await Engine(room, "one").tell(stored=[[0, *HASHES]])
    await become(room, {"one": 4})

    for copy in copies[:2]:
        copy.kill()
    assert await holders(room) == {"one": 4}


async def test_a_replica_that_is_no_pod_any_more_is_forgotten_by_every_copy(room):
    index, objects = PrefixIndex(1000), CacheStore(room.store)
    await room.put("Pod", "lives", "blue", spec={"containers": [{"name": "c"}]})
    uid = (await room.store.get("Pod", "blue", "lives")).uid
    for replica in (uid, "gone"):
        index.store(replica, ("m", 16), HASHES)

    await forget_gone(index, objects)

    assert index.replicas == {uid}


async def test_garbage_is_answered_and_changes_nothing(room):
    controller = room.controller().start().ready()
    await Engine(room, "one").tell(stored=[[0, *HASHES]])
    await become(room, {"one": 4})

    for question in ({"token_ids": [-1] * 16}, {"token_ids": [1 << 40] * 16}):
        with pytest.raises(InvalidArgument):
            await holders(room, **question)
    with pytest.raises(InvalidArgument):
        await room.bus.ask(FindCacheHolders(model="m", block_size=0, token_ids=[1]))
    await room.bus.connection.publish("gpubus.tel.cache-blocks.node-a", b'{"replica": 7, "stored": "x"}')
    await room.bus.connection.publish("gpubus.tel.cache-blocks.node-a", b"\xff")

    assert await holders(room) == {"one": 4}
    assert controller.running
