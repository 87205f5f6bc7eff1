"""Names that must match the reference: accelerator keys, resource keys of makers, node names.

Pure. Read next: inventory.py, which uses them to describe a node.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from shared.ids import short_suffix
from shared.store.names import SUBDOMAIN

FLEET = "fleet"
"""Source of batched heartbeats; no node may have this name."""
SIMULATED_LABEL = "gpubus.io/simulated"

_OUTSIDE = re.compile(r"[^a-z0-9]+", re.ASCII)
_TRADEMARKS = re.compile(r"\((?:r|tm|c)\)|[®™©]", re.IGNORECASE)
_ID_LONGEST = 40
"""With the longest maker and suffix (`cambricon-<id>.runtime-version`) a label name stays within 63 characters."""
_NODE_LONGEST = 63


@dataclass(frozen=True, slots=True)
class Manufacturer:
    """One maker of accelerators."""

    key: str
    base: str
    """Resource key of a whole card; its other forms are `<base>.shared`, `<base>.sliced` and so on."""
    words: tuple[str, ...]
    """How product names may begin; left out of the product id, because the key says it already."""


MANUFACTURERS: Mapping[str, Manufacturer] = {
    maker.key: maker
    for maker in (
        Manufacturer("amd", "amd.com/gpu", ("amd",)),
        Manufacturer("ascend", "huawei.com/npu", ("huawei", "ascend")),
        Manufacturer("cambricon", "cambricon.com/mlu", ("cambricon",)),
        Manufacturer("hygon", "hygon.com/dcu", ("hygon",)),
        Manufacturer("iluvatar", "iluvatar.com/gpu", ("iluvatar",)),
        Manufacturer("metax", "metax-tech.com/gpu", ("metax",)),
        Manufacturer("mthreads", "mthreads.com/gpu", ("moore threads", "mthreads")),
        Manufacturer("nvidia", "nvidia.com/gpu", ("nvidia",)),
        Manufacturer("thead", "alibabacloud.com/ppu", ("t-head", "thead")),
    )
}


def product_id(manufacturer: str, product: str) -> str:
    """The group id of a product: `NVIDIA H100 80GB HBM3` of nvidia is `h100-80gb-hbm3`, `Tesla T4` is `tesla-t4`.

    Too long ones are cut and end in a hash of the whole, so that two products never share an id.
    """
    text = _TRADEMARKS.sub(" ", product).strip().lower()
    maker = MANUFACTURERS.get(manufacturer)
    for word in maker.words if maker else (manufacturer,):
        if text.startswith(word) and not text[len(word) : len(word) + 1].isalnum():
            text = text[len(word) :]
            break
    clean = _OUTSIDE.sub("-", text).strip("-")
    if not clean:
        return f"unnamed-{short_suffix(manufacturer, product)}"
    if len(clean) <= _ID_LONGEST:
        return clean
    return f"{clean[: _ID_LONGEST - 6].rstrip('-')}-{short_suffix(product)}"


def base_resource(manufacturer: str) -> str:
    """The resource key of one whole card, e.g. `nvidia.com/gpu`; makers we do not know get `<maker>.com/gpu`."""
    maker = MANUFACTURERS.get(manufacturer)
    return maker.base if maker else f"{manufacturer}.com/gpu"


def node_name(hostname: str) -> str:
    """A host's name as the name of a node: lower case, `[a-z0-9.-]`, at most 63 characters."""
    parts = (_OUTSIDE.sub("-", part).strip("-") for part in hostname.strip().lower().split("."))
    name = ".".join(filter(None, parts))[:_NODE_LONGEST].strip("-.")
    return name or "node"


def is_node_name(name: str) -> bool:
    """Whether a node may be called that."""
    return name != FLEET and not SUBDOMAIN.problem(name)


def label_value(text: str) -> str:
    """Any text as a label value: letters, digits, `-_.`, at most 63 characters, letters or digits at both ends."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", text)[:63].strip("-_.")
