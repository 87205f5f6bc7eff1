import pytest

from services.discovery.domain.rules import NODE, RULES, refusal
from shared.commands.objects import WriteObject
from shared.errors import Unimplemented
from shared.resources.core import Node
from shared.resources.kinds import owned_by
from tests.unit.discovery.builders import Stored, a_reading
from tests.unit.discovery.test_inventory import a_claimed_node


@pytest.fixture
def node():
    stored = Stored(a_claimed_node())
    stored.report(a_reading(1))
    return stored.node


def relabelled(node: Node, labels: dict[str, str]) -> Node:
    return node.model_copy(update={"metadata": node.metadata.model_copy(update={"labels": labels})})


def test_a_user_may_add_labels_and_cordon(node):
    new = relabelled(node, {**node.metadata.labels, "team": "blue"})

    assert NODE.validate(new, node, lambda *_: None) == []


def test_a_label_that_the_agent_sets_is_not_for_users(node):
    new = relabelled(node, {**node.metadata.labels, "kubernetes.io/os": "plan9"})

    causes = NODE.validate(new, node, lambda *_: None)

    assert [cause.field for cause in causes] == ["metadata.labels[kubernetes.io/os]"]


def test_a_taint_needs_a_known_effect(node):
    spec = node.spec.model_validate({"taints": [{"key": "a", "effect": "NoSchedule"}, {"key": "b", "effect": "Never"}]})

    causes = NODE.validate(node.model_copy(update={"spec": spec}), node, lambda *_: None)

    assert [cause.field for cause in causes] == ["spec.taints[1].effect"]


def test_deleting_a_node_is_a_fact(node):
    assert [type(fact).__name__ for fact in NODE.facts(node, None)] == ["NodeRemoved"]
    assert [type(fact).__name__ for fact in NODE.facts(node, node)] == ["DiscoveryObjectApplied"]


@pytest.mark.parametrize(
    ("kind", "verb"), [("Devices", "replace"), ("Devices", "delete"), ("Node", "create"), ("Node", "status")]
)
def test_what_agents_report_is_not_written_by_users(kind, verb):
    assert isinstance(refusal(WriteObject(verb=verb, kind=kind, name="n1")), Unimplemented)


def test_a_user_may_replace_and_delete_a_node():
    assert refusal(WriteObject(verb="replace", kind="Node", name="n1")) is None
    assert refusal(WriteObject(verb="delete", kind="Node", name="n1")) is None


def test_every_owned_kind_has_rules():
    assert set(RULES) == {kind.kind for kind in owned_by("discovery")}
