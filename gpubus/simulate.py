"""`gpubus simulate -f F`: what would happen if this were applied now, asked of the scheduler; nothing is written.

Must not decide: the scheduler's own code answers. Read next: services/scheduler/handlers.py (explain_placement).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from gpubus.bus import admin_bus
from gpubus.explain import explained
from gpubus.refusal import Refusal
from gpubus.resources import documents
from gpubus.terminal import paint

# The resource key of a whole card, by the manufacturer that an InstanceType names (reference operator, section 3.1).
_CARD_KEYS = {
    "amd": "amd.com/gpu", "ascend": "huawei.com/npu", "cambricon": "cambricon.com/mlu", "hygon": "hygon.com/dcu",
    "iluvatar": "iluvatar.com/gpu", "metax": "metax-tech.com/gpu", "mthreads": "mthreads.com/gpu",
    "nvidia": "nvidia.com/gpu", "thead": "alibabacloud.com/ppu",
}  # fmt: skip


def simulate(sources: list[str], namespace: str, data_dir: str) -> int:
    """Print the scheduler's answer for every Workload and every replica set of the files; 1 when one would wait.

    Raises:
        Refusal: nothing in them needs placing, or nobody answers.
    """
    asked = [one for _, body in documents(sources) for one in questions(body, namespace or "default")]
    if not asked:
        raise Refusal("Nothing in these files needs placing: give a Workload or a ModelDeployment.")
    return asyncio.run(_ask(asked, data_dir))


async def _ask(asked: list[tuple[str, str, dict[str, Any]]], data_dir: str) -> int:
    from shared.errors import GpubusError, Unavailable
    from shared.queries import ExplainPlacement

    waits = 0
    async with admin_bus(data_dir) as bus:
        for about, namespace, spec in asked:
            try:
                answer = await bus.ask(ExplainPlacement(namespace=namespace, workload=spec), timeout=5.0)
            except Unavailable as error:
                raise Refusal(
                    f"This system does not answer what-if questions ({error.message}); is the scheduler running?"
                ) from error
            except GpubusError as error:
                raise Refusal(f"{about}: {error.message}") from error
            admitted = answer.state in {"Admitted", "Fits", "WouldAdmit"} or any(
                node.get("fits") for node in answer.nodes
            )
            waits = waits or int(not admitted)
            print(f"{paint(about, 'bold')}: {answer.state}, {answer.message or answer.reason}")
            for line in explained(answer.model_dump(by_alias=True)):
                print(f"  {line}")
    return waits


def questions(body: dict[str, Any], namespace: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """(about, namespace, WorkloadSpec as JSON) of what a document would ask for."""
    metadata = body.get("metadata") or {}
    name, space = str(metadata.get("name", "")), str(metadata.get("namespace") or namespace)
    if body.get("kind") == "Workload":
        yield f"workload {name}", space, dict(body.get("spec") or {})
    if body.get("kind") == "ModelDeployment":
        for role in (body.get("spec") or {}).get("roles") or ():
            count = int(role.get("replicas", 1))
            yield f"{name}/{role.get('name')} x {count}", space, _workload_of(role, count)


def _workload_of(role: dict[str, Any], count: int) -> dict[str, Any]:
    """The whole-card request that a role makes; slices and partitions are asked for with a Workload document."""
    from shared.resources.pool import entrance

    wanted, instance_type = role.get("resources") or {}, str(role.get("instanceType", ""))
    limits = {key: str(wanted[own]) for key, own in (("cpu", "cpu"), ("memory", "ram")) if wanted.get(own)}
    card = next((key for maker, key in _CARD_KEYS.items() if instance_type.startswith(f"gpustack--{maker}-")), "")
    cards = int(wanted.get("accelerator", 1 if card else 0))
    if card and cards:
        limits[card] = str(cards)
    container = {"name": "engine", "resources": {"limits": limits}}
    pod = {"spec": {"containers": [container], "nodeSelector": role.get("nodeSelector") or {}}}
    return {"queueName": entrance(instance_type), "podSets": [{"name": "main", "count": count, "template": pod}]}
