"""A node's conditions and the facts of each move: joined, silent, unknown, returned.

Pure. Must not decide who is silent. Read next: liveness.py, which does.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from shared.events.device import NodeFact, NodeLost, NodeReturned
from shared.resources.base import Condition, get_condition, is_true, set_condition
from shared.resources.core import Node

READY = "Ready"
NODES_UNKNOWN = "NodesUnknown"
"""True on a silent node that is not declared lost, because too many fell silent together."""


class NodeReason(StrEnum):
    """Why a node is Ready or not."""

    AGENT_REPORTS = "AgentReports"
    NOT_REPORTED_YET = "NotReportedYet"
    NODE_SILENT = "NodeSilent"
    TOO_MANY_SILENT = "TooManySilent"
    HEARD_AGAIN = "HeardAgain"


def with_condition(node: Node, condition: Condition, now: datetime) -> Node:
    """The node with one condition replaced."""
    stamped = condition.model_copy(update={"observed_generation": node.metadata.generation or None})
    conditions = set_condition(node.status.conditions, stamped, now)
    return node.model_copy(update={"status": node.status.model_copy(update={"conditions": conditions})})


def reason_of(node: Node) -> str:
    """The reason of condition Ready; empty when there is none."""
    found = get_condition(node.status.conditions, READY)
    return found.reason if found else ""


def is_lost(node: Node) -> bool:
    """Declared lost and not heard since."""
    return reason_of(node) == NodeReason.NODE_SILENT


def is_held(node: Node) -> bool:
    """Silent together with too many others to be declared lost."""
    return is_true(node.status.conditions, NODES_UNKNOWN)


def ready(node: Node, now: datetime) -> Node:
    """Ready: its agent speaks; a silence that was held is over."""
    told = Condition(type=READY, status="True", reason=NodeReason.AGENT_REPORTS, message="the node's agent reports")
    return with_condition(known(node, now), told, now)


def not_reported(node: Node, now: datetime) -> Node:
    """Claimed, but nothing is known of it yet."""
    sentence = "the node's agent has joined and not reported yet"
    told = Condition(type=READY, status="Unknown", reason=NodeReason.NOT_REPORTED_YET, message=sentence)
    return with_condition(node, told, now)


def lost(node: Node, seconds: float, now: datetime) -> Node:
    """Silent for the time-out: its devices are unavailable, never free."""
    sentence = f"nothing heard of the node for {seconds:g} s"
    told = Condition(type=READY, status="Unknown", reason=NodeReason.NODE_SILENT, message=sentence)
    return with_condition(known(node, now), told, now)


def held(node: Node, silent: int, of: int, now: datetime) -> Node:
    """Silent, but so are too many others: rather our ears than the nodes."""
    sentence = f"{silent} of {of} nodes fell silent together: none is declared lost; delete a Node that is really gone"
    told = Condition(type=NODES_UNKNOWN, status="True", reason=NodeReason.TOO_MANY_SILENT, message=sentence)
    return with_condition(node, told, now)


def known(node: Node, now: datetime) -> Node:
    """The silence that was held is over, one way or the other."""
    if not is_held(node):
        return node
    told = Condition(type=NODES_UNKNOWN, status="False", reason=NodeReason.HEARD_AGAIN, message="")
    return with_condition(node, told, now)


def lost_fact(node: Node) -> NodeFact:
    """`node.lost`."""
    return NodeLost(name=node.name, uid=node.uid, labels=node.metadata.labels, reason=NodeReason.NODE_SILENT)


def returned_fact(node: Node) -> NodeFact:
    """`node.returned`."""
    return NodeReturned(name=node.name, uid=node.uid, labels=node.metadata.labels, reason=NodeReason.HEARD_AGAIN)
