"""Nodes, cards and readings for tests; not a test. Read next: test_inventory.py."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from services.discovery.domain.inventory import Outcome, decide_report
from services.discovery.domain.reading import Reading, read
from shared.queries import ClaimNode
from shared.reports import NodeReported
from shared.resources.core import Node
from shared.resources.device import Devices

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


def a_card(index: int, *, identity: str = "", unhealthy: str = "") -> dict[str, Any]:
    status = {"unhealthy": bool(unhealthy), "reason": "CriticalError" if unhealthy else "", "message": unhealthy}
    return {"id": identity or f"GPU-{index}", "index": index, "physicalIndexes": [index], "status": status}


def a_group(
    *cards: dict[str, Any], identity: str = "a10g", manufacturer: str = "nvidia", **more: Any
) -> dict[str, Any]:
    body = {"id": identity, "manufacturer": manufacturer, "name": "NVIDIA A10G", "memory": 23028, "cores": 80}
    return {**body, **more, "accelerators": list(cards)}


def a_report(
    sequence: int = 1, *, incarnation: str = "i1", groups: list[dict[str, Any]] | None = None, **more: Any
) -> NodeReported:
    body: dict[str, Any] = {
        "node": "n1",
        "incarnation": incarnation,
        "sequence": sequence,
        "labels": {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64", "kubernetes.io/hostname": "n1"},
        "capacity": {"cpu": "32", "memory": "128Gi"},
        "node_info": {"machineId": "m1", "bootId": "b1", "operatingSystem": "linux", "architecture": "amd64"},
        "runtimes": ["process"],
        "groups": groups if groups is not None else [],
    }
    return NodeReported(**(body | more))


def a_reading(sequence: int = 1, **more: Any) -> Reading:
    return read(a_report(sequence, **more))


def a_claim(**more: Any) -> ClaimNode:
    return ClaimNode(**({"node": "n1", "machine_id": "m1", "boot_id": "b1", "incarnation": "i1"} | more))


class Stored:
    """The two documents of one node, changed by what decisions say."""

    def __init__(self, node: Node, devices: Devices | None = None) -> None:
        self.node = node
        self.devices = devices

    def report(self, reading: Reading) -> Outcome:
        outcome = decide_report(self.node, self.devices, reading, NOW)
        self.node = outcome.node or self.node
        self.devices = outcome.devices or self.devices
        return outcome
