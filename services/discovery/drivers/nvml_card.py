"""One pass over NVIDIA's cards: what each is (read once), and the signs of its health (read each time).

A card whose reading fails keeps what was known of it; only the driver's own word makes it unhealthy.
Every call blocks. Read next: ../domain/health.py, which judges the signs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from services.discovery.domain.health import NvidiaSigns, judge_nvidia
from services.discovery.domain.identity import product_id
from services.discovery.drivers.pci import place_of
from shared.clock import Clock
from shared.errors import Unavailable
from shared.resources.device import Accelerator, AcceleratorGroup, DeviceTopology

T = TypeVar("T")

MANUFACTURER = "nvidia"
_MIB = 1024 * 1024
_EVENTS_A_PASS = 256
"""A card that reports errors without end must not stop the pass."""
_CORES_PER_SM = {(7, 0): 64, (7, 2): 64, (7, 5): 64, (8, 0): 64, (6, 0): 64}
"""CUDA cores of one multiprocessor where it is not 128 (the CUDA programming guide's arithmetic table)."""
_ARCHITECTURES = {
    2: "Kepler", 3: "Maxwell", 4: "Pascal", 5: "Volta", 6: "Turing", 7: "Ampere", 8: "Ada", 9: "Hopper",
    10: "Blackwell", 13: "Rubin",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Versions:
    """Of the whole installation."""

    driver: str = ""
    runtime: str = ""

    @classmethod
    def read(cls, nvml: Any) -> Versions:
        """Ask the driver; what it does not tell stays empty."""
        cuda = _told(nvml, nvml.nvmlSystemGetCudaDriverVersion) or 0
        return cls(
            _told(nvml, nvml.nvmlSystemGetDriverVersion) or "", f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else ""
        )


@dataclass(frozen=True, slots=True)
class _Known:
    """What does not change while the driver runs, and the last good reading."""

    group: AcceleratorGroup
    card: Accelerator


class CardReader:
    """All cards of one host; one caller at a time."""

    def __init__(self, nvml: Any, versions: Versions, clock: Clock) -> None:
        self._nvml = nvml
        self._versions = versions
        self._clock = clock
        self._known: dict[int, _Known] = {}
        self._errors: dict[str, tuple[int, float]] = {}
        self._events: Any = None
        self._watched: set[str] = set()

    def read(self) -> tuple[AcceleratorGroup, ...]:
        """Every card, by product.

        Raises:
            Unavailable: the driver does not even count its cards.
        """
        try:
            count = self._nvml.nvmlDeviceGetCount()
        except self._nvml.NVMLError as error:
            raise Unavailable(f"NVML does not count its cards: {error}") from error
        self._drain_events()
        # A card that fell off the bus leaves a gap at its index or at the end: driver indexes do not move at run time.
        seen = range(max(count, 1 + max(self._known, default=-1)))
        self._known = {index: known for index in seen if (known := self._card(index, within=index < count))}
        return tuple(_grouped(self._known.values()))

    def shut(self) -> None:
        """Let go of the driver."""
        _told(self._nvml, self._nvml.nvmlShutdown)

    def _card(self, index: int, *, within: bool) -> _Known | None:
        nvml, before = self._nvml, self._known.get(index)
        try:
            if not within:
                return before and self._judged(before, NvidiaSigns(gone=True))
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            identity = nvml.nvmlDeviceGetUUID(handle)
            known = before if before and before.card.id == identity else self._described(index, identity, handle)
            return self._judged(known, self._signs(identity, handle))
        except nvml.NVMLError_GpuIsLost:
            return before and self._judged(before, NvidiaSigns(gone=True))
        except nvml.NVMLError:
            return before

    def _judged(self, known: _Known, signs: NvidiaSigns) -> _Known:
        return _Known(known.group, known.card.model_copy(update={"status": judge_nvidia(signs)}))

    def _described(self, index: int, identity: str, handle: Any) -> _Known:
        nvml = self._nvml
        name = nvml.nvmlDeviceGetName(handle)
        capability = _told(nvml, nvml.nvmlDeviceGetCudaComputeCapability, handle) or (0, 0)
        cuda_cores = _told(nvml, nvml.nvmlDeviceGetNumGpuCores, handle) or 0
        architecture = _told(nvml, nvml.nvmlDeviceGetArchitecture, handle)
        group = AcceleratorGroup(
            id=product_id(MANUFACTURER, name),
            manufacturer=MANUFACTURER,
            name=name,
            memory=nvml.nvmlDeviceGetMemoryInfo(handle).total // _MIB,
            cores=cuda_cores // _CORES_PER_SM.get(tuple(capability), 128),
            driver_version=self._versions.driver,
            runtime_version=self._versions.runtime,
            compute_capability=".".join(map(str, capability)) if any(capability) else "",
            family=_ARCHITECTURES.get(architecture or 0, ""),
        )
        minor = _told(nvml, nvml.nvmlDeviceGetMinorNumber, handle)
        card = Accelerator(
            id=identity,
            index=index,
            physical_indexes=[index if minor is None else minor],
            topology=self._place(handle),
        )
        self._watch(identity, handle)
        return _Known(group, card)

    def _place(self, handle: Any) -> DeviceTopology:
        told = _told(self._nvml, self._nvml.nvmlDeviceGetPciInfo, handle)
        bus = told.busId if told else ""
        return place_of(bus.decode() if isinstance(bus, bytes) else bus)

    def _signs(self, identity: str, handle: Any) -> NvidiaSigns:
        nvml = self._nvml
        mode = _told(nvml, nvml.nvmlDeviceGetMigMode, handle)
        xid, at = self._errors.get(identity, (None, 0.0))
        return NvidiaSigns(
            xid=xid,
            xid_age=self._clock.monotonic() - at,
            reset_needed=self._reset_needed(handle),
            partition_mode=None if mode is None else bool(mode[0]),
        )

    def _reset_needed(self, handle: Any) -> bool | None:
        nvml = self._nvml
        field = getattr(nvml, "NVML_FI_DEV_GET_GPU_RECOVERY_ACTION", None)
        values = None if field is None else _told(nvml, nvml.nvmlDeviceGetFieldValues, handle, [field])
        if not values or values[0].nvmlReturn != nvml.NVML_SUCCESS:
            return None
        return bool(values[0].value.uiVal)

    def _watch(self, identity: str, handle: Any) -> None:
        nvml = self._nvml
        if identity in self._watched:
            return
        self._watched.add(identity)
        if self._events is None:
            self._events = _told(nvml, nvml.nvmlEventSetCreate)
        if self._events is not None:
            _told(nvml, nvml.nvmlDeviceRegisterEvents, handle, nvml.nvmlEventTypeXidCriticalError, self._events)

    def _drain_events(self) -> None:
        nvml = self._nvml
        for _ in range(_EVENTS_A_PASS if self._events is not None else 0):
            event = _told(nvml, nvml.nvmlEventSetWait_v2, self._events, 0)
            if event is None:
                return
            identity = _told(nvml, nvml.nvmlDeviceGetUUID, event.device)
            if identity:
                self._errors[identity] = (int(event.eventData), self._clock.monotonic())


def _grouped(cards: Any) -> Iterator[AcceleratorGroup]:
    groups: dict[str, AcceleratorGroup] = {}
    for known in cards:
        group = groups.setdefault(known.group.key, known.group.model_copy(update={"accelerators": []}))
        group.accelerators.append(known.card)
        # Cards of one product may differ by what the driver keeps for itself: promise the least.
        group.memory = min(group.memory, known.group.memory)
    yield from groups.values()


def _told(nvml: Any, call: Callable[..., T], *args: Any) -> T | None:
    """What the driver tells; None where it cannot or does not know how."""
    try:
        return call(*args)
    except nvml.NVMLError:
        return None
