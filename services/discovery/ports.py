"""What the node part needs from outside: the host's facts, and each maker's cards.

Must not contain logic. Read next: drivers/host.py, drivers/nvml.py, drivers/simulated.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from shared.resources.core import NodeAddress, NodeInfo
from shared.resources.device import AcceleratorGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """One host as its operating system tells."""

    cpu_milli: int
    """Thousandths of cores that this process tree may use."""
    memory_bytes: int
    info: NodeInfo
    labels: dict[str, str] = field(default_factory=dict)
    addresses: tuple[NodeAddress, ...] = ()


class HostProbe(Protocol):
    """Reads the host."""

    async def read(self) -> HostFacts:
        """The facts now.

        Raises:
            Unavailable: they could not be read; the last ones stay.
        """
        ...


class AcceleratorProbe(Protocol):
    """Reads the cards of one maker."""

    @property
    def source(self) -> str:
        """Whose cards these are; one probe's failure touches no other's."""
        ...

    async def read(self) -> tuple[AcceleratorGroup, ...]:
        """Every card of this maker, healthy or not; empty when there is no driver.

        Raises:
            Unavailable: nothing could be measured; what was known stays.
        """
        ...

    async def close(self) -> None:
        """Let go of the driver."""
        ...
