"""Backends, pools and grants through the bus: stored, judged, told that they are not served yet."""

from __future__ import annotations

import asyncio

from shared.errors import from_dict
from shared.events.objects import GatewayObjectRemoved
from shared.resources.kvcache import KVCachePoolBinding
from tests.support.wait import eventually
from tests.unit.kvcache.test_rules import SPECS


def a_binding(pool: str = "pool", domain: str = "team", ceiling: str = "8Gi") -> dict:
    return {
        "poolRef": {"name": pool},
        "quota": {"ceiling": ceiling},
        "domain": {"name": domain, "blockSize": 64, "dtype": "bfloat16"},
    }


async def furnished(room):
    assert (await room.write("create", "KVCacheBackend", "store", SPECS["KVCacheBackend"])).error is None
    assert (await room.write("create", "KVCachePool", "pool", SPECS["KVCachePool"])).error is None


def field_of(answer):
    error = from_dict(answer.error)
    return error.causes[0].field, error.causes[0].message


async def test_each_object_is_stored_and_says_that_it_is_not_served_yet(room):
    room.controller().start().ready()

    await furnished(room)
    assert (await room.write("create", "KVCachePoolBinding", "grant", a_binding(), "blue")).error is None

    for kind, name, namespace in (
        ("KVCacheBackend", "store", ""),
        ("KVCachePool", "pool", ""),
        ("KVCachePoolBinding", "grant", "blue"),
    ):

        async def says(kind=kind, name=name, namespace=namespace):
            ready = await room.condition(kind, name, "Ready", namespace)
            return ready is not None and (ready.status, ready.reason) == ("False", "NotServedYet")

        await eventually(says)


async def test_each_names_the_one_above_it(room):
    room.controller().start().ready()

    assert field_of(await room.write("create", "KVCachePool", "pool", SPECS["KVCachePool"]))[0] == "spec.backends[0]"
    assert (
        field_of(await room.write("create", "KVCachePoolBinding", "g", a_binding(), "blue"))[0] == "spec.poolRef.name"
    )
    answer = await room.write("create", "KVCachePoolBinding", "g", a_binding(), "nowhere")
    assert from_dict(answer.error).code.value == "NotFound"


async def test_a_domain_has_one_holder_however_many_ask_at_once(room):
    copies = [room.controller(f"kvcache-{n}").start() for n in range(2)]
    for copy in copies:
        copy.ready()
    await furnished(room)

    answers = await asyncio.gather(
        *(room.write("create", "KVCachePoolBinding", f"g{n}", a_binding(), ("blue", "red")[n % 2]) for n in range(12))
    )

    stored = [answer for answer in answers if answer.error is None]
    assert len(stored) == 1
    holder = stored[0].object["metadata"]
    for answer in answers:
        if answer.error is not None:
            field, message = field_of(answer)
            assert field == "spec.domain.name"
            assert f"{holder['namespace']}/{holder['name']}" in message

    gone = await room.write("delete", "KVCachePoolBinding", holder["name"], namespace=holder["namespace"])
    assert gone.error is None
    assert (await room.write("create", "KVCachePoolBinding", "next", a_binding(), "red")).error is None


async def test_granting_more_than_there_is_is_said_and_taken_back(room):
    room.controller().start().ready()
    await furnished(room)
    for name in ("a", "b"):
        spec = a_binding(domain=name, ceiling="40Gi")
        assert (await room.write("create", "KVCachePoolBinding", name, spec, "blue")).error is None

    async def within(status):
        told = await room.condition("KVCachePool", "pool", "QuotaWithinTotal")
        return told is not None and told.status == status

    await eventually(lambda: within("False"))
    await room.write("delete", "KVCachePoolBinding", "b", namespace="blue")
    await eventually(lambda: within("True"))


async def test_grants_go_with_their_namespace(room):
    room.controller().start().ready()
    await furnished(room)
    for namespace in ("blue", "red"):
        await room.write("create", "KVCachePoolBinding", "g", a_binding(domain=namespace), namespace)

    await room.publish(GatewayObjectRemoved(kind="Namespace", name="blue", uid="x"))

    async def left():
        taken = await room.store.snapshot(["KVCachePoolBinding"])
        return [d.read(KVCachePoolBinding).namespace for d in taken.documents] == ["red"]

    await eventually(left)


async def test_a_controller_killed_between_its_commits_says_the_rest_later(room):
    flag = room.directory / "flag"
    flag.touch()
    controller = room.controller(GPUBUS_FAULTS=f"kvcache.after-commit=kill@{flag}").start().ready()

    await room.write("create", "KVCacheBackend", "store", SPECS["KVCacheBackend"])
    await eventually(lambda: not controller.running)
    controller.kill()
    controller.start().ready()
    await room.write("create", "KVCachePool", "pool", SPECS["KVCachePool"])

    async def says():
        told = [
            await room.condition(kind, name, "Ready")
            for kind, name in (("KVCacheBackend", "store"), ("KVCachePool", "pool"))
        ]
        return all(condition is not None and condition.reason == "NotServedYet" for condition in told)

    await eventually(says)
