"""How much CPU and memory one unit of a pool charges: the reference's presets, by product, else by memory of the card.

Pure. Read next: pools.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from shared.resources.pool import UnitResources

LOCAL_STORAGE = "100Gi"
CPU_UNIT = UnitResources(cpu="1", ram="2Gi")
_FALLBACK = UnitResources(cpu="4", ram="16Gi")
"""A card that does not say how much memory it has."""
_SMALL = UnitResources(cpu="8", ram="32Gi")
_MEDIUM = UnitResources(cpu="8", ram="64Gi")
_LARGE = UnitResources(cpu="12", ram="128Gi")
_XLARGE = UnitResources(cpu="12", ram="192Gi")

_GIB = 1024
_BY_MEMORY = ((16 * _GIB, _SMALL), (48 * _GIB, _MEDIUM), (96 * _GIB, _LARGE))

# Rows whose tier is not the one of their memory, or that come in several sizes; matched against the product id.
_BY_PRODUCT: Mapping[str, UnitResources] = {
    r"(.*-)?(h100|h200|h800|b200|b300|gb200|mi300x|mi325x)(-.*)?": _XLARGE,
    r"(.*-)?(910-93\d\d|950)(-.*)?": _XLARGE,
    r"(.*-)?a100-(.*-)?80gb(-.*)?": _LARGE,
    r"(.*-)?(l40s|k100|mxc550)(-.*)?": _LARGE,
    r"(.*-)?(a10|a10g|l40|910b\d?|mtt-s4000|ppu-zw810e)(-.*)?": _MEDIUM,
    r"(.*-)?(t4|l4|a30|v100)(-.*)?": _SMALL,
}
_ROWS = tuple((re.compile(pattern, re.ASCII), tier) for pattern, tier in _BY_PRODUCT.items())


def unit_resources(product: str, memory_mib: int) -> UnitResources:
    """The unit of a pool of one product; `product` is the sanitised id without the maker, e.g. `a10g`."""
    for pattern, tier in _ROWS:
        if pattern.fullmatch(product):
            return tier
    if memory_mib <= 0:
        return _FALLBACK
    return next((tier for most, tier in _BY_MEMORY if memory_mib <= most), _XLARGE)
