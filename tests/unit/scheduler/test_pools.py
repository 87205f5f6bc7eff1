"""Pools: names as the reference has them, unit tiers, capacity views."""

import pytest

from services.scheduler.domain.pools import PoolKey, derived_type, flavors, groups_by_pool, local_queue, pools_of
from services.scheduler.domain.tiers import unit_resources
from services.scheduler.domain.views import allocations, capacity_views
from shared.resources.device import DevicesStatus
from shared.resources.pool import entrance
from tests.unit.scheduler.builders import A10G, a_node, facts

NAMES = {
    "gpustack--nvidia-a10g-linux-amd64": "c4680bb149644f1c",
    "gpustack--generic-linux-amd64": "3b93966fd73eb9ec",
    "gpustack--nvidia-tesla-t4-linux-amd64": "6b371caa2da0b799",
    "gpustack--nvidia-h100-80gb-hbm3-linux-amd64": "e4768a65ca0ce96b",
}


@pytest.mark.parametrize(("name", "digest"), NAMES.items())
def test_entrance_is_the_documented_one(name, digest):
    assert entrance(name) == f"gpustack-fnv64-{digest}"
    assert len(entrance(name)) == 31


@pytest.mark.parametrize(
    ("key", "name"),
    [
        (PoolKey("", "linux", "amd64"), "gpustack--generic-linux-amd64"),
        (PoolKey("nvidia-a10g", "linux", "amd64"), "gpustack--nvidia-a10g-linux-amd64"),
        (PoolKey("ascend-910b", "linux", "arm64"), "gpustack--ascend-910b-linux-arm64"),
    ],
)
def test_pool_is_named_as_the_reference_names_it(key, name):
    assert key.name == name


def test_node_with_cards_is_in_the_generic_pool_too():
    assert [key.accelerator for key in pools_of(facts(cards=2), mixed=True)] == ["", A10G]


def test_setting_keeps_nodes_with_cards_out_of_the_generic_pool():
    assert [key.accelerator for key in pools_of(facts(cards=2), mixed=False)] == [A10G]
    assert [key.accelerator for key in pools_of(facts(), mixed=False)] == [""]


def test_derived_type_describes_its_cards_and_charges_its_tier():
    found = groups_by_pool([facts("n2", cards=2), facts("n1")], mixed=True)
    made = {key.name: derived_type(key, group) for key, group in found.items()}

    a10g = made["gpustack--nvidia-a10g-linux-amd64"]
    assert list(made) == ["gpustack--generic-linux-amd64", "gpustack--nvidia-a10g-linux-amd64"]
    assert (a10g.spec.acceleratable, a10g.spec.accelerator_group, a10g.spec.memory) == (True, A10G, 23028)
    assert (a10g.spec.unit_resources.cpu, a10g.spec.unit_resources.ram) == ("8", "64Gi")
    assert a10g.metadata.labels["schedule.gpustack.ai/queue-entrance"] == entrance(a10g.name)
    generic = made["gpustack--generic-linux-amd64"].spec
    assert (generic.unit_resources.cpu, generic.unit_resources.ram, generic.local_storage) == ("1", "2Gi", "100Gi")


@pytest.mark.parametrize(
    ("product", "memory", "unit"),
    [
        ("tesla-t4", 15360, ("8", "32Gi")),
        ("l4", 23034, ("8", "32Gi")),
        ("a30", 24576, ("8", "32Gi")),
        ("tesla-v100-sxm2-16gb", 16384, ("8", "32Gi")),
        ("a10g", 23028, ("8", "64Gi")),
        ("910b4", 65536, ("8", "64Gi")),
        ("l40", 46068, ("8", "64Gi")),
        ("l40s", 46068, ("12", "128Gi")),
        ("a100-sxm4-80gb", 81920, ("12", "128Gi")),
        ("a100-sxm4-40gb", 40960, ("8", "64Gi")),
        ("h100-80gb-hbm3", 81559, ("12", "192Gi")),
        ("b200", 183359, ("12", "192Gi")),
        ("mi300x", 196608, ("12", "192Gi")),
        ("new-one", 12288, ("8", "32Gi")),
        ("new-one", 49152, ("8", "64Gi")),
        ("new-one", 98304, ("12", "128Gi")),
        ("new-one", 98305, ("12", "192Gi")),
        ("new-one", 0, ("4", "16Gi")),
    ],
)
def test_unit_is_the_tier_of_the_product_else_of_its_memory(product, memory, unit):
    found = unit_resources(product, memory)

    assert (found.cpu, found.ram) == unit


def test_catalogue_has_a_row_for_cpus_and_one_for_each_product():
    rows = flavors([facts("n1", cards=1), facts("n2", cards=4), facts("n3")])

    assert list(rows) == ["gpustack--generic", "gpustack--nvidia-a10g"]
    assert [row.spec.acceleratable for row in rows.values()] == [False, True]
    assert rows["gpustack--nvidia-a10g"].spec.sliceable


def test_local_queue_carries_the_full_name():
    queue = local_queue("team-a", "gpustack--generic-linux-amd64")

    assert queue.name == "gpustack-fnv64-3b93966fd73eb9ec"
    assert queue.metadata.annotations == {"schedule.gpustack.ai/queue": "gpustack--generic-linux-amd64"}
    assert queue.spec.cluster_queue == "gpustack--generic-linux-amd64"


def shown(*nodes):
    views = capacity_views(A10G, nodes)
    return " ".join(f"{views[v].once_max_request}/{views[v].remaining}" for v in list(views)[:4])


@pytest.mark.parametrize(
    ("free", "expected"),
    [(8, (8, 80, 800, 0)), (6, (6, 60, 600, 0)), (1, (1, 10, 100, 0)), (0, (0, 0, 0, 0))],
)
def test_views_of_an_eight_card_node_follow_the_oracle(free, expected):
    views = capacity_views(A10G, [a_node(cards=8, free=free)])

    assert tuple(view.remaining for view in list(views.values())[:4]) == expected


def test_views_of_one_card_and_of_several_nodes():
    t4s = [a_node(f"n{i}", cards=1) for i in range(5)]

    assert shown(a_node(cards=1)) == "1/1 1/10 100/100 0/0"
    assert shown(a_node(cards=1, free=0)) == "0/0 0/0 0/0 0/0"
    assert shown(*t4s) == "1/5 1/50 100/500 0/0"


def test_lost_node_counts_in_no_view():
    views = capacity_views(A10G, [a_node("n1", cards=2), a_node("n2", cards=4, ready=False)])

    assert (views["accelerator"].capacity, views["accelerator"].remaining) == (2, 2)
    assert views["cpu"].capacity == 32


def test_allocation_of_a_node_names_who_holds_each_card():
    group = {"id": "a10g", "manufacturer": "nvidia", "accelerators": [{"id": "g0"}, {"id": "g1", "index": 1}]}

    groups = allocations([group], {"g0": 1_600_000}, {"g0": ["default/w"]})

    first, second = DevicesStatus.model_validate({"groups": groups}).groups[0].accelerators
    assert (first.mode, first.allocated, first.remaining, first.holders) == ("Exclusive", 1_600_000, 0, ["default/w"])
    assert (second.mode, second.index, second.allocated, second.remaining) == ("None", 1, 0, 1_600_000)
