"""Small documents and facts."""

from __future__ import annotations

from typing import Any

from shared.events.objects import SchedulerObjectApplied
from shared.store.documents import Put


def body(uid: str = "", **spec: Any) -> dict[str, Any]:
    metadata = {"uid": uid} if uid else {}
    return {"kind": "Workload", "metadata": metadata, "spec": spec}


def new(name: str, namespace: str = "default", **spec: Any) -> Put:
    return Put("Workload", namespace, name, body(**spec), None)


def fact(name: str) -> SchedulerObjectApplied:
    return SchedulerObjectApplied(kind="Workload", namespace="default", name=name, uid="u-1")
