"""The fleet file: simulated nodes, what is wrong with them, and how slow their world is. Checked strictly, field by field.

Pure but for `load`. Must not import services. `up` reads the nodes' names with it. Read next: gpubus/fleet.py, which brings the nodes to life.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from shared.errors import Cause, GpubusError, InvalidArgument, Malformed
from shared.resources.base import Metadata, Model, Quantity, from_validation
from shared.store.names import SUBDOMAIN, metadata_causes
from shared.units import parse_count, parse_milli

MOST_NODES = 1000
"""Live nodes on one host; larger fleets run under a virtual clock."""
_RESERVED = "fleet"

Maker = Literal["amd", "ascend", "cambricon", "hygon", "iluvatar", "metax", "mthreads", "nvidia", "thead"]
Whole = Annotated[int, Field(strict=True)]


class FleetDevices(Model):
    """Equal cards of a node."""

    manufacturer: Maker = Field(description="Maker's key.")
    product: str = Field(min_length=1, max_length=128, description="As the maker names it, e.g. NVIDIA A10G.")
    memory: Quantity = Field(description="Of one card.")
    cores: Whole = Field(default=0, ge=0, description="Multiprocessors of one card.")
    count: Whole = Field(default=1, ge=1, le=64)


class FleetNode(Model):
    """One node, or `count` equal ones called name-0, name-1 and so on."""

    name: str
    count: Whole = Field(default=1, ge=0, le=MOST_NODES)
    labels: dict[str, str] = Field(default_factory=dict)
    os: Literal["linux", "windows", "darwin"] = "linux"
    arch: Literal["amd64", "arm64"] = "amd64"
    cpu: Quantity = Field(default="32", description="Cores.")
    memory: Quantity = "128Gi"
    devices: list[FleetDevices] = Field(default_factory=list, max_length=16)
    rdma: Whole = Field(default=0, ge=0, le=64, description="Usable whole endpoints.")
    silent: bool = Field(default=False, description="All of them say nothing, as if cut off.")


class FleetFault(Model):
    """Something wrong with one node, or with one of its cards; re-read on SIGHUP."""

    node: str = Field(description="The expanded name, e.g. a10g-1.")
    silent: bool = Field(default=False, description="The node says nothing and hears nothing; what runs on it goes on.")
    unreadable: bool = Field(default=False, description="Its driver answers nothing: what was known stays.")
    device: Whole | None = Field(default=None, ge=0, description="Position of a card on the node, from 0.")
    unhealthy: str | None = Field(default=None, min_length=1, description="Why that card is unhealthy.")
    missing: bool = Field(default=False, description="That card is gone.")


class Fleet(Model):
    """The whole file."""

    hub: Literal["simulated"] | None = Field(
        default=None, description="simulated: any repository resolves to a made-up commit and manifest."
    )
    model_size: Quantity = Field(default="15Gi", description="Of a repository of the simulated hub.")
    link_mi_bps: float = Field(
        default=0.0,
        ge=0,
        le=1_000_000,
        description="MiB a second into one node, which deliveries then take; 0: at once.",
    )
    engine_start_seconds: float = Field(
        default=0.0, ge=0, le=3600, description="From start to ready of a simulated engine."
    )
    nodes: list[FleetNode] = Field(min_length=1)
    faults: list[FleetFault] = Field(default_factory=list)


@dataclass(frozen=True, slots=True)
class NodePlan:
    """One expanded node with what is wrong with it."""

    name: str
    node: FleetNode
    silent: bool = False
    unreadable: bool = False
    unhealthy: Mapping[int, str] | None = None
    missing: frozenset[int] = frozenset()

    @property
    def cpu_milli(self) -> int:
        """Thousandths of cores."""
        return parse_milli(self.node.cpu)

    @property
    def memory_bytes(self) -> int:
        """Of the host."""
        return parse_count(self.node.memory)


def load(path: Path) -> Fleet:
    """Read and check a file.

    Raises:
        InvalidArgument, Malformed: the message and causes name each field, e.g. `nodes[0].devices[1].memory`.
    """
    import yaml

    try:
        body = yaml.load(path.read_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - both are safe loaders
    except OSError as error:
        raise InvalidArgument(f"the fleet file {path} cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise Malformed(f"the fleet file {path} is not YAML: {' '.join(str(error).split())}") from error
    try:
        return parse(body)
    except GpubusError as error:
        raise type(error)(f"the fleet file {path}: {error.message}", error.causes) from error


def parse(body: Any) -> Fleet:
    """Check a decoded file.

    Raises:
        InvalidArgument, Malformed: see load.
    """
    if not isinstance(body, dict):
        raise Malformed("a fleet file is a mapping with `nodes`", (Cause("", "is not a mapping"),))
    try:
        fleet = Fleet.model_validate(body)
    except ValidationError as error:
        raise from_validation(error) from error
    causes = tuple(_causes(fleet))
    if causes:
        raise InvalidArgument("; ".join(f"{cause.field}: {cause.message}" for cause in causes[:5]), causes)
    return fleet


def names(node: FleetNode) -> Sequence[str]:
    """The nodes that one entry stands for."""
    return [node.name] if node.count == 1 else [f"{node.name}-{number}" for number in range(node.count)]


def expand(fleet: Fleet) -> Iterator[NodePlan]:
    """Every node with its faults."""
    faults: dict[str, list[FleetFault]] = {}
    for fault in fleet.faults:
        faults.setdefault(fault.node, []).append(fault)
    for node in fleet.nodes:
        for name in names(node):
            found = faults.get(name, [])
            yield NodePlan(
                name,
                node,
                silent=node.silent or any(fault.silent for fault in found),
                unreadable=any(fault.unreadable for fault in found),
                unhealthy={f.device: f.unhealthy for f in found if f.device is not None and f.unhealthy},
                missing=frozenset(f.device for f in found if f.device is not None and f.missing),
            )


def _causes(fleet: Fleet) -> Iterator[Cause]:
    seen: dict[str, int] = {}
    for position, node in enumerate(fleet.nodes):
        path = f"nodes[{position}]"
        yield from _node_causes(path, node)
        for name in names(node):
            if name in seen:
                yield Cause(f"{path}.name", f"{name!r} is also a node of nodes[{seen[name]}]", "FieldValueDuplicate")
                break
            seen[name] = position
    if len(seen) > MOST_NODES:
        yield Cause("nodes", f"{len(seen)} nodes; a live stack takes {MOST_NODES}", "FieldValueTooMany")
    plans = {name: fleet.nodes[position] for name, position in seen.items()}
    for position, fault in enumerate(fleet.faults):
        yield from _fault_causes(f"faults[{position}]", fault, plans)


def _node_causes(path: str, node: FleetNode) -> Iterator[Cause]:
    longest = names(node)[-1] if node.count else node.name
    problem = SUBDOMAIN.problem(node.name) or SUBDOMAIN.problem(longest)
    if problem or node.name == _RESERVED:
        yield Cause(f"{path}.name", f"{node.name!r} {problem or 'is reserved'}")
    for cause in metadata_causes(Metadata(name="x", labels=node.labels), SUBDOMAIN, namespaced=False):
        yield Cause(f"{path}.{cause.field.removeprefix('metadata.')}", cause.message)
    for field, text in (("cpu", node.cpu), ("memory", node.memory)):
        yield from _amount(f"{path}.{field}", text, whole=field == "memory")
    for number, devices in enumerate(node.devices):
        yield from _amount(f"{path}.devices[{number}].memory", devices.memory, whole=True)


def _amount(path: str, text: str, *, whole: bool) -> Iterator[Cause]:
    if parse_milli(text) <= 0:
        yield Cause(path, "must be more than 0")
    elif whole and parse_milli(text) % 1000:
        yield Cause(path, f"{text} is not a whole number of bytes")


def _fault_causes(path: str, fault: FleetFault, plans: Mapping[str, FleetNode]) -> Iterator[Cause]:
    node = plans.get(fault.node)
    if node is None:
        yield Cause(f"{path}.node", f"there is no node {fault.node!r}", "FieldValueNotFound")
        return
    cards = sum(devices.count for devices in node.devices)
    if fault.device is None and (fault.unhealthy or fault.missing):
        yield Cause(f"{path}.device", "is required with unhealthy and missing", "FieldValueRequired")
    if fault.device is not None and fault.device >= cards:
        yield Cause(f"{path}.device", f"{fault.node} has {cards} cards, from 0")
