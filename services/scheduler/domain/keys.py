"""Resource keys of the nine makers, as the reference names them, and the form of capacity each asks for.

Pure. Read next: request.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Form(StrEnum):
    """How a card is asked for. Only whole cards are admitted so far; the others are recognised and say so."""

    WHOLE = "exclusive"
    SHARED = "shared"
    SLICED = "sliced"
    PARTITIONED = "partitioned"


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
"""Manufacturer to the key of one whole card; its other forms are `<base>.<form>`."""

CPU, MEMORY = "cpu", "memory"
METERED = frozenset({CPU, MEMORY})
UNMETERED = frozenset({"ephemeral-storage"})
"""Standard resources that are allowed and that no ledger counts."""
DEVICE_PREFIX = "device.gpustack.ai/"
"""RDMA endpoints and side-car visibility: in no family, not admitted yet."""

_BY_BASE = {base: maker for maker, base in BASE_KEYS.items()}


@dataclass(frozen=True, slots=True)
class CardKey:
    """A resource key that asks for cards."""

    manufacturer: str
    form: Form


def card_key(name: str) -> CardKey | None:
    """What a resource key asks of which maker; None for keys that are about no card we know."""
    maker = _BY_BASE.get(name)
    if maker is not None:
        return CardKey(maker, Form.WHOLE)
    for form in (Form.SHARED, Form.SLICED, Form.PARTITIONED):
        base, found, rest = name.partition(f".{form.value}")
        if found and base in _BY_BASE and (not rest or rest.startswith(".")):
            return CardKey(_BY_BASE[base], form)
    return None
