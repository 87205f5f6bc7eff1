"""Hardware that exists only on paper: the nodes of a fleet file, and the reference of both ports.

Ids are computed from node, product and position, so they are the same after every restart.
Must not know the file's format. Read next: gpubus/fleet.py, which builds these from it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from services.discovery.domain.identity import SIMULATED_LABEL, product_id
from services.discovery.ports import HostFacts
from shared.errors import Unavailable
from shared.ids import derived_id
from shared.resources.core import NodeAddress, NodeInfo
from shared.resources.device import Accelerator, AcceleratorGroup, DeviceHealth, DeviceTopology

CARD_PREFIXES: Mapping[str, str] = {"nvidia": "GPU", "amd": "GPU", "ascend": "NPU", "cambricon": "MLU"}
"""How each maker's ids begin; others use `ACC`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedCards:
    """Equal cards of one node."""

    manufacturer: str
    product: str
    memory_mib: int
    cores: int = 0
    count: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedHardware:
    """One node of a fleet."""

    name: str
    cpu_milli: int
    memory_bytes: int
    os: str = "linux"
    arch: str = "amd64"
    labels: Mapping[str, str] = field(default_factory=dict)
    cards: Sequence[SimulatedCards] = ()
    address: str = "127.0.0.1"
    rdma: int = 0
    unhealthy: Mapping[int, str] = field(default_factory=dict)
    """Card position on the node -> why it is unhealthy."""
    missing: frozenset[int] = frozenset()
    """Cards that fell off the bus."""
    unreadable: bool = False
    """The driver answers nothing: what was known stays."""

    @property
    def machine_id(self) -> str:
        """Stable for the name."""
        return derived_id("gpubus-simulated-machine", self.name).replace("-", "")

    @property
    def boot_id(self) -> str:
        """Stable for the name: simulated nodes never boot."""
        return derived_id("gpubus-simulated-boot", self.name)


class SimulatedHost:
    """Port HostProbe of one simulated node."""

    def __init__(self, hardware: SimulatedHardware) -> None:
        self.hardware = hardware

    async def read(self) -> HostFacts:
        """See port."""
        hardware = self.hardware
        info = NodeInfo(
            machine_id=hardware.machine_id,
            boot_id=hardware.boot_id,
            kernel_version="simulated",
            os_image="simulated",
            operating_system=hardware.os,
            architecture=hardware.arch,
            cpu_model="Simulated",
            cpu_vendor="simulated",
        )
        standard = {
            "kubernetes.io/os": hardware.os,
            "kubernetes.io/arch": hardware.arch,
            "kubernetes.io/hostname": hardware.name,
            SIMULATED_LABEL: "true",
        }
        return HostFacts(
            cpu_milli=hardware.cpu_milli,
            memory_bytes=hardware.memory_bytes,
            info=info,
            labels={**hardware.labels, **standard},
            addresses=(
                NodeAddress(type="InternalIP", address=hardware.address),
                NodeAddress(type="Hostname", address=hardware.name),
            ),
        )


class SimulatedProbe:
    """Port AcceleratorProbe of one simulated node; all makers at once."""

    source = "simulated"

    def __init__(self, hardware: SimulatedHardware) -> None:
        self.hardware = hardware

    async def read(self) -> tuple[AcceleratorGroup, ...]:
        """See port."""
        if self.hardware.unreadable:
            raise Unavailable(f"the simulated driver of {self.hardware.name} does not answer")
        groups: dict[str, AcceleratorGroup] = {}
        position = 0
        for cards in self.hardware.cards:
            found = [self._card(cards, number) for number in range(position, position + cards.count)]
            position += cards.count
            group = _group(cards)
            known = groups.get(group.key)
            present = [card for card in found if card.index not in self.hardware.missing]
            before = known.accelerators if known else []
            groups[group.key] = (known or group).model_copy(update={"accelerators": [*before, *present]})
        return tuple(group for group in groups.values() if group.accelerators)

    async def close(self) -> None:
        """Nothing is held."""

    def _card(self, cards: SimulatedCards, number: int) -> Accelerator:
        why = self.hardware.unhealthy.get(number)
        prefix = CARD_PREFIXES.get(cards.manufacturer, "ACC")
        return Accelerator(
            id=f"{prefix}-{derived_id('gpubus-simulated-card', self.hardware.name, str(number))}",
            index=number,
            physical_indexes=[number],
            topology=DeviceTopology(
                pci_bus_id=f"0000:{number + 1:02x}:00.0", pci_class="0302", numa_affinity=str(number // 4)
            ),
            status=DeviceHealth(
                unhealthy=why is not None, reason="Simulated" if why is not None else "", message=why or ""
            ),
        )


def _group(cards: SimulatedCards) -> AcceleratorGroup:
    return AcceleratorGroup(
        id=product_id(cards.manufacturer, cards.product),
        manufacturer=cards.manufacturer,
        name=cards.product,
        memory=cards.memory_mib,
        cores=cards.cores,
        driver_version="simulated",
    )
