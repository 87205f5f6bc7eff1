"""What may be said of cache objects: cases/manifests.md section 6 and KVC-07, row by row."""

from __future__ import annotations

import copy
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from services.kvcache.domain.domains import DomainHolders
from services.kvcache.domain.rules import BACKEND, BINDING, POOL, RULES, with_holders
from services.kvcache.domain.status import backend_status, binding_status, pool_status
from shared.errors import InvalidArgument, Malformed
from shared.resources.base import from_validation, get_condition
from shared.resources.kinds import KINDS, owned_by

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)

MANAGED = {"managed": {"leader": {}, "members": [{"capacityPerMember": "8Gi"}]}}
SPECS: dict[str, dict[str, Any]] = {
    "KVCacheBackend": {"connection": MANAGED},
    "KVCachePool": {"backends": ["store"], "quota": {"total": "64Gi"}},
    "KVCachePoolBinding": {
        "poolRef": {"name": "pool"},
        "quota": {"ceiling": "8Gi"},
        "domain": {"name": "team", "blockSize": 64, "dtype": "bfloat16"},
    },
}
ABSENT = object()


def put(body: dict[str, Any], path: str, value: Any) -> None:
    *parents, last = path.split(".")
    for parent in parents:
        body = body[int(parent)] if isinstance(body, list) else body[parent]
    if value is ABSENT:
        del body[last]
    else:
        body[last] = value


def an_object(
    kind: str, name: str = "x", namespace: str = "", spec: dict[str, Any] | None = None, **changes: Any
) -> Any:
    """`changes` are `a__b=value` for spec.a.b."""
    body = copy.deepcopy(spec or SPECS[kind])
    for path, value in changes.items():
        put(body, path.replace("__", "."), value)
    metadata = {"name": name, "namespace": namespace, "generation": 1, "uid": f"{namespace}/{name}"}
    sent = {"apiVersion": KINDS[kind].api_version, "kind": kind, "metadata": metadata, "spec": body}
    try:
        resource = KINDS[kind].model.model_validate(sent)
    except ValidationError as error:
        raise from_validation(error) from error
    return RULES[kind].default(resource)


def causes(kind: str, old: Any = None, **changes: Any) -> list[str]:
    """Fields that are refused; all referenced objects exist."""
    try:
        new = an_object(kind, **changes)
    except InvalidArgument as error:
        return [cause.field for cause in error.causes]
    return [cause.field for cause in RULES[kind].validate(new, old, lambda *_: {"kind": "any"})]


def test_the_plain_objects_are_accepted():
    for kind in SPECS:
        assert causes(kind) == []
    assert {kind.kind for kind in owned_by("kvcache")} == set(RULES)


@pytest.mark.parametrize("backends", [[], ["a", "b"], None])
def test_k1_a_pool_names_exactly_one_backend(backends):
    assert causes("KVCachePool", backends=backends) == ["spec.backends"]


def test_k2_a_grant_has_a_ceiling():
    assert causes("KVCachePoolBinding", quota__ceiling=ABSENT) == ["spec.quota.ceiling"]


def test_k3_a_ceiling_over_the_total_is_stored_and_said():
    pool = an_object("KVCachePool", "pool")
    bindings = [an_object("KVCachePoolBinding", name, "default", quota__ceiling="40Gi") for name in ("a", "b")]

    told = get_condition(pool_status(pool, bindings, NOW).status.conditions, "QuotaWithinTotal")

    assert (told.status, told.reason) == ("False", "Oversubscribed")
    assert told.message == "ceilings sum to 80Gi, the total is 64Gi"
    told = get_condition(pool_status(pool, bindings[:1], NOW).status.conditions, "QuotaWithinTotal")
    assert told.status == "True"


def test_k4_amounts_are_positive_quantities():
    with pytest.raises(Malformed):
        an_object("KVCachePoolBinding", quota__ceiling="8GB")
    assert causes("KVCachePoolBinding", quota__ceiling="0") == ["spec.quota.ceiling"]
    assert causes("KVCachePoolBinding", quota__ceiling="-1Gi") == ["spec.quota.ceiling"]
    assert causes("KVCachePoolBinding", quota__ceiling="1500m") == ["spec.quota.ceiling"]
    assert causes("KVCachePool", quota__total="0") == ["spec.quota.total"]


@pytest.mark.parametrize(("dtype", "refused"), [("auto", True), ("bf16", False), ("BF16", False), ("fp8", False)])
def test_k5_auto_is_no_dtype(dtype, refused):
    assert causes("KVCachePoolBinding", domain__dtype=dtype) == (["spec.domain.dtype"] if refused else [])


@pytest.mark.parametrize("size", [0, -1])
def test_k6_a_block_has_a_positive_size(size):
    assert causes("KVCachePoolBinding", domain__blockSize=size) == ["spec.domain.blockSize"]


@pytest.mark.parametrize("size", ["64", 64.0, 64.5, True])
def test_k6_a_block_size_is_a_whole_number_and_nothing_like_it(size):
    with pytest.raises(Malformed):
        an_object("KVCachePoolBinding", domain__blockSize=size)


def holders_of(*bindings: Any) -> DomainHolders:
    pools = [
        an_object("KVCachePool", name, backends=[backend])
        for name, backend in (("pool", "store"), ("p2", "store"), ("p3", "other"))
    ]
    return DomainHolders(pools, bindings)


def domain_causes(new: Any, *existing: Any) -> list[str]:
    rules = with_holders(holders_of(*existing))["KVCachePoolBinding"]
    return [cause.message for cause in rules.validate(new, None, lambda *_: {"kind": "any"})]


def test_k7_a_domain_is_claimed_once_on_a_backend_through_whatever_pool():
    first = an_object("KVCachePoolBinding", "first", "blue")

    again = domain_causes(an_object("KVCachePoolBinding", "second", "red"), first)
    by_other_pool = domain_causes(an_object("KVCachePoolBinding", "third", "red", poolRef__name="p2"), first)
    other_backend = domain_causes(an_object("KVCachePoolBinding", "fourth", "red", poolRef__name="p3"), first)
    other_name = domain_causes(an_object("KVCachePoolBinding", "fifth", "red", domain__name="mine"), first)

    assert "KVCachePoolBinding blue/first" in again[0]
    assert "'store'" in by_other_pool[0]
    assert other_backend == other_name == []


def test_k7_a_left_out_name_is_default_and_collides_too():
    first = an_object("KVCachePoolBinding", "first", "blue", domain__name=ABSENT)

    assert first.spec.domain.name == "default"
    assert domain_causes(an_object("KVCachePoolBinding", "second", "red", domain__name=ABSENT), first)


def test_two_that_took_a_domain_at_the_same_moment_are_told_apart_by_age():
    old, young = (an_object("KVCachePoolBinding", name, "blue") for name in ("z-old", "a-young"))
    old.metadata.creation_timestamp = NOW
    young.metadata.creation_timestamp = NOW + timedelta(seconds=1)
    holders = holders_of(young, old)

    told = [get_condition(binding_status(b, holders, NOW).status.conditions, "DomainExclusive") for b in (old, young)]

    assert [condition.status for condition in told] == ["True", "False"]
    assert "blue/z-old" in told[1].message


@pytest.mark.parametrize("ref", [{"name": "pool", "namespace": "other"}, {"url": "http://pool"}])
def test_k8_a_pool_is_named_and_nothing_else(ref):
    with pytest.raises(Malformed):
        an_object("KVCachePoolBinding", poolRef=ref)


def test_k9_an_empty_leader_is_written_with_braces():
    with pytest.raises(InvalidArgument) as refused:
        an_object("KVCacheBackend", connection__managed__leader=None)

    assert "{}" in refused.value.causes[0].message
    assert refused.value.causes[0].field == "spec.connection.managed.leader"


def test_k10_a_medium_is_case_sensitive_and_a_quantity_has_no_blanks():
    assert causes("KVCacheBackend", connection__managed__members__0__medium="dram") == [
        "spec.connection.managed.members[0].medium"
    ]
    with pytest.raises(Malformed):
        an_object("KVCacheBackend", connection__managed__members__0__capacityPerMember="8Gi ")


@pytest.mark.parametrize(
    ("kind", "changes", "field"),
    [
        ("KVCachePool", {"backends": ["elsewhere"]}, "spec.backends"),
        ("KVCachePoolBinding", {"domain__blockSize": 128}, "spec.domain.blockSize"),
        ("KVCachePoolBinding", {"domain__dtype": "fp8"}, "spec.domain.dtype"),
        ("KVCachePoolBinding", {"domain__name": "other"}, "spec.domain.name"),
        ("KVCachePoolBinding", {"poolRef__name": "other"}, "spec.poolRef.name"),
        ("KVCacheBackend", {"connection__managed__members__0__medium": "VRAM"}, "spec.connection.managed.members[0].medium"),
        ("KVCacheBackend", {"connection": {"external": {"endpoints": [
            {"name": "Client", "address": "h:1"}, {"name": "Admin", "address": "h:2"}]}}}, "spec.connection"),
    ],
)  # fmt: skip
def test_what_stored_blocks_depend_on_is_frozen(kind, changes, field):
    assert causes(kind, old=an_object(kind), **changes) == [field]


def test_quotas_may_change():
    assert causes("KVCachePool", old=an_object("KVCachePool"), quota__total="1Gi") == []
    assert causes("KVCachePoolBinding", old=an_object("KVCachePoolBinding"), quota__ceiling="1Gi") == []


def test_each_object_names_one_that_exists():
    def nothing(*_: str) -> None:
        return None

    pool, binding = an_object("KVCachePool"), an_object("KVCachePoolBinding")
    assert [cause.field for cause in POOL.validate(pool, None, nothing)] == ["spec.backends[0]"]
    assert [cause.field for cause in BINDING.validate(binding, None, nothing)] == ["spec.poolRef.name"]
    assert POOL.validate(pool, pool, nothing) == BINDING.validate(binding, binding, nothing) == []
    assert POOL.needs(pool) == [("KVCacheBackend", "", "store")]
    assert BINDING.needs(binding) == [("KVCachePool", "", "pool")]


M = "connection__managed__"


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"transport": {"protocol": "rdma"}}, "spec.transport.protocol"),
        ({M + "leader": {"replicas": 2, "electionBackend": "None"}}, "spec.connection.managed.leader.replicas"),
        ({M + "leader": {"replicas": 6}}, "spec.connection.managed.leader.replicas"),
        ({M + "leader": {"extraArgs": ["-v=1", "--port=1"]}}, "spec.connection.managed.leader.extraArgs[1]"),
        ({M + "members": []}, "spec.connection.managed.members"),
        ({M + "members__0__capacityPerMember": "0"}, "spec.connection.managed.members[0].capacityPerMember"),
        ({"connection": {}}, "spec.connection"),
        ({"connection": {**MANAGED, "external": {"endpoints": [{"name": "Client", "address": "h:1"}]}}}, "spec.connection"),
        ({"connection": {"external": {"endpoints": [{"name": "Client", "address": "h:1"}]}}}, "spec.connection.external.endpoints"),
        ({"connection": {"external": {"endpoints": [{"name": "Client", "address": "http://h:1/"}, {"name": "Admin", "address": "[::1]:9003"}]}}},
         "spec.connection.external.endpoints[0].address"),
    ],
)  # fmt: skip
def test_a_backend_that_cannot_work_is_refused(changes, field):
    assert causes("KVCacheBackend", **changes) == [field]


@pytest.mark.parametrize(
    ("disk", "field"),
    [
        ({"path": "/"}, "path"), ({"path": "relative"}, "path"), ({"path": "/a/../b"}, "path"),
        ({"path": "/dev/infiniband/x"}, "path"), ({"capacity": "0"}, "capacity"),
        ({"eviction": {"enabled": False, "policy": "LRU"}}, "eviction"),
        ({"eviction": {"watermark": {"high": 50, "low": 50}}}, "eviction.watermark.low"),
        ({"eviction": {"watermark": {"high": 101}}}, "eviction.watermark.high"),
        ({"eviction": {"watermark": {"mid": 3}}}, "eviction.watermark"),
        ({}, None), ({"eviction": {"watermark": {"high": 90, "low": 70}}}, None),
    ],
)  # fmt: skip
def test_a_disk_tier_is_checked_at_creation(disk, field):
    tier = {"path": "/var/cache/kv", "capacity": "100Gi", **disk}

    found = causes("KVCacheBackend", **{M + "members__0__localDisks": [tier]})

    assert found == ([f"spec.connection.managed.members[0].localDisks[0].{field}"] if field else [])


def test_what_is_not_served_says_so_and_says_it_once():
    backend = backend_status(an_object("KVCacheBackend"), NOW)

    ready = get_condition(backend.status.conditions, "Ready")
    assert (ready.status, ready.reason, ready.observed_generation) == ("False", "NotServedYet", 1)
    assert backend_status(backend, NOW + timedelta(hours=1)) == backend


def test_facts_name_the_object():
    applied, removed = (
        BACKEND.facts(None, an_object("KVCacheBackend")),
        BINDING.facts(an_object("KVCachePoolBinding"), None),
    )

    assert [type(fact).__name__ for fact in applied] == ["KvcacheObjectApplied"]
    assert [type(fact).__name__ for fact in removed] == ["KvcacheObjectRemoved", "CacheUnbound"]
    assert removed[1].pool == "pool"
