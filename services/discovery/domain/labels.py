"""Labels and capacity that follow from a node's cards, under the reference's keys.

Pure. Read next: inventory.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from services.discovery.domain.identity import base_resource, label_value
from shared.resources.device import AcceleratorGroup

ACCELERATABLE = "feature.gpustack.ai/acceleratable"
PREFIX = "acceleratable.feature.gpustack.ai/"


def accelerator_labels(groups: Iterable[AcceleratorGroup]) -> dict[str, str]:
    """What users select nodes by: maker, accelerator key, product, memory, cores, count and versions."""
    found: dict[str, str] = {}
    for group in groups:
        key = f"{PREFIX}{group.key}"
        found |= {f"{PREFIX}{group.manufacturer}": "true", key: "true", f"{key}.count": str(len(group.accelerators))}
        told = {
            f"{PREFIX}{group.manufacturer}.driver-version": group.driver_version,
            f"{PREFIX}{group.manufacturer}.runtime-version": group.runtime_version,
            f"{key}.product": group.name,
            f"{key}.memory": str(group.memory) if group.memory else "",
            f"{key}.cores": str(group.cores) if group.cores else "",
            f"{key}.family": group.family,
            f"{key}.comcap": group.compute_capability,
        }
        found |= {name: value for name, raw in told.items() if (value := label_value(raw))}
    return {ACCELERATABLE: "true" if found else "false", **found}


def devices_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """The labels of a Devices object: those of its node that say what is in it."""
    shared = ("kubernetes.io/os", "kubernetes.io/arch", "gpubus.io/simulated")
    return {key: value for key, value in labels.items() if key in shared or key.startswith(PREFIX)}


def accelerator_capacity(groups: Iterable[AcceleratorGroup]) -> dict[str, str]:
    """Whole healthy cards by resource key; a maker whose cards are all unhealthy shows 0, one without cards nothing."""
    counts: dict[str, int] = {}
    for group in groups:
        key = base_resource(group.manufacturer)
        healthy = sum(not card.status.unhealthy for card in group.accelerators)
        counts[key] = counts.get(key, 0) + healthy
    return {key: str(count) for key, count in counts.items()}
