"""Who speaks for a node: one agent start at a time, and what lets the next one take over at once.

Pure. A claim is an incarnation (machine, boot, nonce) written into the Node. Read next: liveness.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from services.discovery.domain import identity, lifecycle
from services.discovery.domain.liveness import Hearing
from shared.queries import ClaimNode
from shared.resources.base import Metadata
from shared.resources.core import Node, NodeInfo, NodeStatus


class ClaimReason(StrEnum):
    """Why a claim was accepted or refused."""

    FIRST = "First"
    SAME = "Same"
    RESTARTED = "Restarted"
    TAKEN_OVER = "TakenOver"
    OTHER_AGENT_LIVES = "OtherAgentLives"
    NOT_JUDGED_YET = "NotJudgedYet"
    INVALID_NAME = "InvalidName"


_REFUSALS = {ClaimReason.OTHER_AGENT_LIVES, ClaimReason.NOT_JUDGED_YET, ClaimReason.INVALID_NAME}


@dataclass(frozen=True, slots=True)
class ClaimOutcome:
    """The answer, and the Node to write; None when it stays as it is."""

    reason: ClaimReason
    message: str = ""
    node: Node | None = None

    @property
    def accepted(self) -> bool:
        """Whether the claimant speaks for the node now."""
        return self.reason not in _REFUSALS


def decide_claim(node: Node | None, claim: ClaimNode, hearing: Hearing, now: datetime) -> ClaimOutcome:
    """Judge one claim; `hearing` is what this process has heard of the incarnation that holds the node."""
    if not identity.is_node_name(claim.node):
        return ClaimOutcome(ClaimReason.INVALID_NAME, f"{claim.node!r} is not a name for a node")
    if node is None:
        return ClaimOutcome(ClaimReason.FIRST, node=_held(_new(claim, now), claim))
    reason = _reason(node, claim, hearing)
    if reason in _REFUSALS:
        return ClaimOutcome(reason, _sentence(node, reason))
    return ClaimOutcome(reason, node=None if reason is ClaimReason.SAME else _held(node, claim))


def _reason(node: Node, claim: ClaimNode, hearing: Hearing) -> ClaimReason:
    status, info = node.status, node.status.node_info
    if status.incarnation == claim.incarnation:
        return ClaimReason.SAME
    if not status.incarnation:
        return ClaimReason.FIRST
    same_boot = (info.machine_id, info.boot_id) == (claim.machine_id, claim.boot_id)
    if same_boot and status.incarnation in claim.previous:
        return ClaimReason.RESTARTED
    if lifecycle.is_lost(node) or hearing is Hearing.SILENT:
        return ClaimReason.TAKEN_OVER
    return ClaimReason.OTHER_AGENT_LIVES if hearing is Hearing.ALIVE else ClaimReason.NOT_JUDGED_YET


def _sentence(node: Node, reason: ClaimReason) -> str:
    if reason is ClaimReason.NOT_JUDGED_YET:
        return f"whether the agent that holds {node.name} still lives is not known yet; ask again"
    machine = node.status.node_info.machine_id
    return f"an agent on machine {machine} speaks for {node.name}; stop it, or give this host another name"


def _new(claim: ClaimNode, now: datetime) -> Node:
    bare = Node(api_version="v1", kind="Node", metadata=Metadata(name=claim.node), status=NodeStatus())
    return lifecycle.not_reported(bare, now)


def _held(node: Node, claim: ClaimNode) -> Node:
    info: NodeInfo = node.status.node_info.model_copy(update={"machine_id": claim.machine_id, "boot_id": claim.boot_id})
    update = {"incarnation": claim.incarnation, "observed_sequence": 0, "node_info": info}
    return node.model_copy(update={"status": node.status.model_copy(update=update)})
