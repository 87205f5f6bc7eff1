"""What a cache backend may say: leader, members, disks, transports.

Pure. Facts: the reference operator's section 6.1. Read next: rules.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from shared.errors import Cause
from shared.resources.kvcache import (
    ExternalStore,
    KVCacheBackendSpec,
    LocalDisk,
    ManagedStore,
    MemberSpec,
    MemberTransport,
)
from shared.units import parse_quantity

PROTOCOLS = ("Auto", "TCP", "RDMA", "EFA", "CANN", "ROCM", "MUSA", "MACA")
RESERVED_ARGS = frozenset(
    {
        "port", "enable_cxl", "cxl_path", "cxl_size", "enable_oplog", "etcd_endpoints", "rpc_address", "rpc_interface",
        "enable_offload", "offload_on_evict", "enable_snapshot", "snapshot_path", "snapshot_interval",
    }
)  # fmt: skip
_ENDPOINT = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]+):([0-9]{1,5})", re.ASCII)


def backend_causes(new: KVCacheBackendSpec, old: KVCacheBackendSpec | None) -> Iterator[Cause]:
    """Everything wrong with a backend."""
    yield from _protocol("spec.transport.protocol", new.transport)
    connection = new.connection
    if connection.external is not None:
        yield from _external("spec.connection.external", connection.external)
    if connection.managed is not None:
        yield from _managed("spec.connection.managed", connection.managed)
    if old is not None:
        yield from _moved(new, old)


def _external(path: str, store: ExternalStore) -> Iterator[Cause]:
    names = [endpoint.name for endpoint in store.endpoints]
    if sorted(names) != ["Admin", "Client"]:
        yield Cause(f"{path}.endpoints", f"needs exactly one Client and one Admin, not {', '.join(names)}")
    for position, endpoint in enumerate(store.endpoints):
        match = _ENDPOINT.fullmatch(endpoint.address)
        if match is None or not 0 < int(match[2]) <= 65535:
            yield Cause(f"{path}.endpoints[{position}].address", f"{endpoint.address!r} is not host:port")


def _managed(path: str, store: ManagedStore) -> Iterator[Cause]:
    leader = store.leader
    if leader.election_backend == "None" and leader.replicas > 1:
        sentence = "must be 1 when electionBackend is None: nobody would choose the leader"
        yield Cause(f"{path}.leader.replicas", sentence)
    for position, argument in enumerate(leader.extra_args):
        name = argument.lstrip("-").partition("=")[0].replace("-", "_")
        if name in RESERVED_ARGS:
            sentence = f"{argument!r} is set by the system; leave it out"
            yield Cause(f"{path}.leader.extraArgs[{position}]", sentence, "FieldValueForbidden")
    for position, member in enumerate(store.members):
        yield from _member(f"{path}.members[{position}]", member)
    tiered = [position for position, member in enumerate(store.members) if member.local_disks]
    if len(tiered) > 1:
        sentence = f"only one group may have a disk tier; members[{tiered[0]}] has one"
        yield Cause(f"{path}.members[{tiered[1]}].localDisks", sentence)


def _member(path: str, member: MemberSpec) -> Iterator[Cause]:
    if parse_quantity(member.capacity_per_member) <= 0:
        yield Cause(f"{path}.capacityPerMember", "must be more than 0")
    yield from _protocol(f"{path}.transport.protocol", member.transport)
    for position, disk in enumerate(member.local_disks):
        yield from _disk(f"{path}.localDisks[{position}]", disk)


def _disk(path: str, disk: LocalDisk) -> Iterator[Cause]:
    if not disk.path.startswith("/") or disk.path.strip("/") == "" or ".." in disk.path.split("/"):
        yield Cause(f"{path}.path", f"{disk.path!r} must be absolute, not / and without ..")
    elif disk.path != disk.path.strip() or f"{disk.path}/".startswith("/dev/infiniband/"):
        yield Cause(f"{path}.path", f"{disk.path!r} must have no blanks around it and lie outside /dev/infiniband")
    if parse_quantity(disk.capacity) <= 0:
        yield Cause(f"{path}.capacity", "must be more than 0")
    eviction = disk.eviction
    given = eviction.model_fields_set
    if not eviction.enabled and given & {"policy", "watermark"}:
        yield Cause(f"{path}.eviction", "has no policy or watermark when it is not enabled")
    if eviction.watermark:
        yield from _watermark(f"{path}.eviction.watermark", eviction.watermark)


def _watermark(path: str, marks: dict[str, int]) -> Iterator[Cause]:
    unknown = sorted(set(marks) - {"high", "low"})
    if unknown:
        yield Cause(path, f"has no {', '.join(unknown)}; it takes high and low")
        return
    for name, value in marks.items():
        if not 1 <= value <= 100:
            yield Cause(f"{path}.{name}", f"{value} is not from 1 to 100")
    if marks.get("low", 0) >= marks.get("high", 101):
        yield Cause(f"{path}.low", "must be lower than high")


def _protocol(path: str, transport: MemberTransport | None) -> Iterator[Cause]:
    if transport is not None and transport.protocol not in PROTOCOLS:
        yield Cause(path, f"{transport.protocol!r} is not one of {', '.join(PROTOCOLS)}", "FieldValueNotSupported")


def _moved(new: KVCacheBackendSpec, old: KVCacheBackendSpec) -> Iterator[Cause]:
    managed, before = new.connection.managed, old.connection.managed
    if (managed is None) != (before is None):
        yield Cause("spec.connection", "cannot move between managed and external", "FieldValueForbidden")
        return
    for position, (now, then) in enumerate(_pairs(managed, before)):
        path = f"spec.connection.managed.members[{position}]"
        if now.medium != then.medium:
            yield Cause(f"{path}.medium", "cannot be changed", "FieldValueForbidden")
        if [disk.path for disk in now.local_disks] != [disk.path for disk in then.local_disks]:
            yield Cause(f"{path}.localDisks", "a disk tier cannot be added, removed or moved", "FieldValueForbidden")


def _pairs(now: ManagedStore | None, then: ManagedStore | None) -> Sequence[tuple[MemberSpec, MemberSpec]]:
    if now is None or then is None:
        return ()
    return list(zip(now.members, then.members, strict=False))
