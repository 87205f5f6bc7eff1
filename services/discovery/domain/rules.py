"""What users may write: a Node's labels, annotations, taints and cordon; and delete it. Devices are read-only.

Pure. Read next: shared/store/objects.py, which applies these.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shared.commands.objects import WriteObject
from shared.errors import Cause, GpubusError, Unimplemented
from shared.events.device import NodeRemoved
from shared.events.objects import DiscoveryObjectApplied
from shared.messages.base import Fact
from shared.resources.core import Node
from shared.store.rules import WriteRules

_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def refusal(write: WriteObject) -> GpubusError | None:
    """Why this write is not for users at all; None when the rules decide."""
    if write.kind == "Devices":
        return Unimplemented("devices are kept by discovery from what agents report; delete the Node to remove them")
    if write.kind == "Node" and write.verb == "create":
        return Unimplemented("a Node appears when its agent joins: run `gpubus agent --join URL` on that host")
    if write.kind == "Node" and write.verb == "status":
        return Unimplemented("a Node's status is what its agent reports")
    return None


def _validate(new: Node, old: Node | None, lookup: Any) -> list[Cause]:  # noqa: ARG001 - the shape of every validate
    causes = []
    for position, taint in enumerate(new.spec.taints):
        if taint.effect not in _EFFECTS:
            causes.append(
                Cause(f"spec.taints[{position}].effect", f"{taint.effect!r} is not one of {', '.join(_EFFECTS)}")
            )
    if old is None:
        return causes
    for key in old.status.agent_labels:
        if new.metadata.labels.get(key) != old.metadata.labels.get(key):
            sentence = f"{key} is set by the node's agent; choose another key"
            causes.append(Cause(f"metadata.labels[{key}]", sentence, "FieldValueForbidden"))
    return causes


def _facts(old: Node | None, new: Node | None) -> tuple[Fact, ...]:
    if new is None:
        assert old is not None, "a write has an old or a new state"
        return (NodeRemoved(name=old.name, uid=old.uid, labels=old.metadata.labels, reason="Deleted"),)
    about = {"kind": "Node", "name": new.name, "uid": new.uid, "generation": new.metadata.generation}
    return (DiscoveryObjectApplied(**about),)


NODE = WriteRules(kind="Node", validate=_validate, facts=_facts)

RULES: Mapping[str, WriteRules] = {"Node": NODE, "Devices": WriteRules(kind="Devices")}
