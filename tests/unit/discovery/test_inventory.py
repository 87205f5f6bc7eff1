import itertools

import pytest

from services.discovery.domain import lifecycle
from services.discovery.domain.claims import decide_claim
from services.discovery.domain.inventory import ReportReason, decide_report, removed_devices
from services.discovery.domain.liveness import Hearing
from shared.resources.base import get_condition
from tests.unit.discovery.builders import NOW, Stored, a_card, a_claim, a_group, a_reading


def a_claimed_node():
    node = decide_claim(None, a_claim(), Hearing.UNJUDGED, NOW).node
    assert node is not None
    return node


def kinds(outcome):
    return [type(fact).__name__ for fact in (*outcome.node_facts, *outcome.device_facts)]


@pytest.fixture
def stored():
    return Stored(a_claimed_node())


def test_the_first_report_makes_the_node_ready_and_its_cards_found(stored):
    outcome = stored.report(a_reading(1, groups=[a_group(a_card(0), a_card(1))]))

    assert outcome.reason is ReportReason.APPLIED
    assert kinds(outcome) == ["NodeJoined", "DeviceFound", "DeviceFound"]
    assert get_condition(stored.node.status.conditions, "Ready").status == "True"
    assert stored.node.status.capacity == {"cpu": "32", "memory": "128Gi", "nvidia.com/gpu": "2"}
    assert [group.key for group in stored.devices.spec.groups] == ["nvidia-a10g"]
    assert outcome.device_facts[0].product == "nvidia-a10g"
    assert stored.node.metadata.labels["acceleratable.feature.gpustack.ai/nvidia-a10g.count"] == "2"


def test_a_node_without_cards_has_no_devices_and_no_accelerator_key(stored):
    outcome = stored.report(a_reading(1))

    assert kinds(outcome) == ["NodeJoined"]
    assert stored.devices is None
    assert stored.node.status.capacity == {"cpu": "32", "memory": "128Gi"}


def test_the_same_report_again_writes_nothing(stored):
    reading = a_reading(1, groups=[a_group(a_card(0))])
    stored.report(reading)

    outcome = stored.report(reading)

    assert (outcome.reason, outcome.node, outcome.devices) == (ReportReason.NOTHING_CHANGED, None, None)
    assert kinds(outcome) == []


def test_an_older_report_is_dropped_whatever_the_order():
    a, b = [a_group(a_card(0))], [a_group(a_card(0), a_card(1))]
    reports = [a_reading(n, groups=groups) for n, groups in ((1, a), (2, b), (3, a))]
    for order in itertools.permutations(reports):
        stored = Stored(a_claimed_node())
        outcomes = [stored.report(reading) for reading in order]
        assert stored.node.status.observed_sequence == 3
        assert len(stored.devices.spec.groups[0].accelerators) == 1
        assert [o.reason for o in outcomes].count(ReportReason.STALE_SEQUENCE) == sum(
            reading.sequence < max(r.sequence for r in order[: position + 1]) for position, reading in enumerate(order)
        )


def test_a_report_of_another_agent_start_is_dropped(stored):
    outcome = stored.report(a_reading(9, incarnation="i0"))

    assert outcome.reason is ReportReason.OTHER_INCARNATION


def test_a_report_of_a_node_nobody_claimed_is_dropped():
    assert decide_report(None, None, a_reading(1), NOW).reason is ReportReason.UNCLAIMED


def test_an_unhealthy_card_leaves_the_capacity_and_comes_back_without_a_restart(stored):
    cards = [a_card(n) for n in range(4)]
    stored.report(a_reading(1, groups=[a_group(*cards)]))

    sick = stored.report(a_reading(2, groups=[a_group(cards[0], a_card(1, unhealthy="xid 48"), *cards[2:])]))

    assert stored.node.status.capacity["nvidia.com/gpu"] == "3"
    assert kinds(sick) == ["DiscoveryObjectApplied", "DeviceDegraded"]
    assert stored.devices.spec.groups[0].accelerators[1].status.message == "xid 48"

    well = stored.report(a_reading(3, groups=[a_group(*cards)]))

    assert stored.node.status.capacity["nvidia.com/gpu"] == "4"
    assert kinds(well) == ["DiscoveryObjectApplied", "DeviceChanged"]
    assert well.device_facts[0].reason == "Recovered"


def test_a_maker_whose_cards_are_all_sick_shows_zero_and_one_without_cards_nothing(stored):
    stored.report(a_reading(1, groups=[a_group(a_card(0, unhealthy="xid 79"))]))
    assert stored.node.status.capacity["nvidia.com/gpu"] == "0"

    outcome = stored.report(a_reading(2, groups=[]))

    assert "nvidia.com/gpu" not in stored.node.status.capacity
    assert kinds(outcome) == ["DiscoveryObjectApplied", "DeviceLost"]
    assert stored.devices.spec.groups == []
    assert stored.node.metadata.labels["feature.gpustack.ai/acceleratable"] == "false"


def test_cards_are_known_by_id_when_the_driver_counts_them_anew(stored):
    order = [4, 0, 1, 2, 3, 5, 6, 7]
    first = stored.report(a_reading(1, groups=[a_group(*(a_card(n, identity=f"GPU-{n}") for n in order))]))
    assert [card.index for card in stored.devices.spec.groups[0].accelerators] == list(range(8))
    assert kinds(first).count("DeviceFound") == 8

    moved = stored.report(a_reading(2, groups=[a_group(*(a_card(7 - n, identity=f"GPU-{n}") for n in order))]))

    assert [card.index for card in stored.devices.spec.groups[0].accelerators] == list(range(8))
    assert set(kinds(moved)) == {"DeviceChanged"}


def test_labels_of_users_stay_and_those_of_the_agent_follow_the_agent(stored):
    stored.report(a_reading(1, labels={"kubernetes.io/os": "linux", "zone": "z1"}))
    metadata = stored.node.metadata
    stored.node = stored.node.model_copy(
        update={"metadata": metadata.model_copy(update={"labels": {**metadata.labels, "team": "blue"}})}
    )

    stored.report(a_reading(2, labels={"kubernetes.io/os": "linux"}))

    labels = stored.node.metadata.labels
    assert labels["team"] == "blue"
    assert "zone" not in labels

    stored.report(a_reading(3, labels={"team": "red"}))

    assert stored.node.metadata.labels["team"] == "red"


def test_a_cordon_survives_every_report(stored):
    stored.node = stored.node.model_copy(update={"spec": stored.node.spec.model_copy(update={"unschedulable": True})})

    stored.report(a_reading(1, groups=[a_group(a_card(0))]))

    assert stored.node.spec.unschedulable


def test_a_lost_node_that_reports_has_returned(stored):
    stored.report(a_reading(1))
    stored.node = lifecycle.lost(stored.node, 3, NOW)

    outcome = stored.report(a_reading(2))

    assert kinds(outcome) == ["NodeReturned"]
    assert get_condition(stored.node.status.conditions, "Ready").status == "True"


def test_a_bad_card_is_left_out_and_the_others_stay():
    reading = a_reading(1, groups=[a_group(a_card(0), {"index": 1, "id": ""}), {"memory": "much"}, a_group(a_card(0))])

    assert [card.id for group in reading.groups for card in group.accelerators] == ["GPU-0"]
    assert len(reading.problems) == 3


def test_capacity_that_is_no_quantity_is_left_out():
    reading = a_reading(1, capacity={"cpu": "many", "memory": "1Gi"})

    assert dict(reading.capacity) == {"memory": "1Gi"}


def test_removing_a_node_loses_its_cards(stored):
    stored.report(a_reading(1, groups=[a_group(a_card(0), a_card(1))]))

    facts = removed_devices("n1", stored.devices)

    assert [(type(f).__name__, f.reason) for f in facts] == [("DeviceLost", "NodeRemoved")] * 2
