"""Where a card sits: its address, the bridges above it, its NUMA node and the cores beside it, from /sys.

What the kernel does not tell stays empty. Read next: nvml_card.py.
"""

from __future__ import annotations

import re
from pathlib import Path

from shared.resources.device import DeviceTopology

_ADDRESS = re.compile(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}:[0-9a-f]{2}\.[0-7])", re.ASCII)


def place_of(bus_id: str, root: Path = Path("/")) -> DeviceTopology:
    """The place of one PCI address, written in any of the usual ways (`00000000:1E:00.0`)."""
    match = _ADDRESS.fullmatch(bus_id.strip().lower())
    if match is None:
        return DeviceTopology()
    address = f"{int(match[1] or '0', 16):04x}:{match[2]}"
    device = root / "sys/bus/pci/devices" / address
    bridges = [part for part in reversed(device.resolve().parent.parts) if _ADDRESS.fullmatch(part)]
    numa = _text(device / "numa_node")
    return DeviceTopology(
        pci_bus_id=address,
        pci_root_id=bridges[-1] if bridges else "",
        pci_switches=bridges,
        pci_class=_text(device / "class").removeprefix("0x")[:4],
        numa_affinity="" if numa.startswith("-") else numa,
        cpu_affinity=_text(device / "local_cpulist"),
    )


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
