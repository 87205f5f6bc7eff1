"""How a role's resources are written as resource keys of a Pod, per manufacturer.

Pure. Facts: the reference operator's sections 3.1, 3.2 and 3.9. Read next: render.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from shared.resources.deployment import RoleResources
from shared.resources.pool import InstanceTypeSpec
from shared.units import format_milli, format_quantity, parse_quantity

BASE_KEYS: Mapping[str, str] = {
    "amd": "amd.com/gpu",
    "ascend": "huawei.com/npu",
    "cambricon": "cambricon.com/mlu",
    "hygon": "hygon.com/dcu",
    "iluvatar": "iluvatar.com/gpu",
    "metax": "metax-tech.com/gpu",
    "mthreads": "mthreads.com/gpu",
    "nvidia": "nvidia.com/gpu",
    "thead": "alibabacloud.com/ppu",
}
PARTITION_KINDS: Mapping[str, str] = {"nvidia": "mig", "hygon": "mig", "thead": "mig"}
INTERFACE_KEY = "device.gpustack.ai/rdma"


def cards(resources: RoleResources, pool: InstanceTypeSpec) -> int:
    """Whole cards that one Pod asks for; 1 when nothing is said and the pool has cards."""
    if resources.accelerator is not None:
        return resources.accelerator
    return 1 if pool.acceleratable else 0


def resource_keys(resources: RoleResources, pool: InstanceTypeSpec) -> dict[str, str]:
    """Limits (and requests) of the engine's container; CPU and memory default to the pool's unit for each card."""
    count = cards(resources, pool)
    units = max(1, count)
    keys = {
        "cpu": resources.cpu or _cores(parse_quantity(pool.unit_resources.cpu) * units),
        "memory": resources.ram or format_quantity(int(parse_quantity(pool.unit_resources.ram) * units)),
    }
    if resources.local_storage:
        keys["ephemeral-storage"] = resources.local_storage
    if resources.interface:
        keys[INTERFACE_KEY] = str(resources.interface)
    return keys | _card_keys(resources, pool, count)


def _card_keys(resources: RoleResources, pool: InstanceTypeSpec, count: int) -> dict[str, str]:
    base = BASE_KEYS.get(pool.manufacturer)
    if base is None or not count:
        return {}
    if resources.accelerator_partitioned_profile:
        kind = PARTITION_KINDS.get(pool.manufacturer, "mig")
        return {
            f"{base}.partitioned": "1",
            f"{base}.partitioned.{kind}-{resources.accelerator_partitioned_profile}": "1",
        }
    memory, cores = resources.accelerator_sliced_memory_percentage, resources.accelerator_sliced_cores_percentage
    if memory or cores:
        return {
            f"{base}.sliced": "1",
            f"{base}.sliced.memory-percentage": str(memory or cores),
            f"{base}.sliced.cores-percentage": str(cores or memory),
        }
    return {f"{base}.shared" if resources.accelerator_shared else base: str(count)}


def _cores(cores: Fraction) -> str:
    return format_milli(-(-(cores * 1000) // 1))
