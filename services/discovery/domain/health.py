"""From what a driver counted to a verdict on a card: healthy unless a measurement says otherwise.

Pure. A reading that failed is no measurement. Read next: ../drivers/nvml.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from shared.resources.device import DeviceHealth

APPLICATION_XIDS = frozenset({13, 31, 43, 45, 68, 109})
"""NVIDIA's error numbers that a program causes; the card is fine (the list of NVIDIA's own device plugin)."""
XID_QUIET_SECONDS = 300.0
"""Without a driver that says whether a reset is needed, a card that was quiet this long after an error counts again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NvidiaSigns:
    """What one pass saw of one card. None: not measured."""

    gone: bool = False
    """The driver says that the card fell off its bus."""
    xid: int | None = None
    """The last critical error number."""
    xid_age: float = 0.0
    """Seconds since it."""
    reset_needed: bool | None = None
    """The driver's own recovery advice."""
    partition_mode: bool | None = None


def judge_nvidia(signs: NvidiaSigns) -> DeviceHealth:
    """The verdict with its reason."""
    if signs.gone:
        return _bad("CardGone", "the driver lost the card; the host must be looked at")
    if signs.reset_needed:
        return _bad("ResetNeeded", f"the driver asks for a reset{f' after xid {signs.xid}' if signs.xid else ''}")
    if _fresh_error(signs):
        return _bad("CriticalError", f"xid {signs.xid}")
    if signs.partition_mode:
        return _bad("PartitionMode", "the card is in partition (MIG) mode; partitions are not offered yet")
    return DeviceHealth()


def _fresh_error(signs: NvidiaSigns) -> bool:
    if signs.xid is None or signs.xid in APPLICATION_XIDS or signs.reset_needed is False:
        return False
    return signs.xid_age < XID_QUIET_SECONDS


def _bad(reason: str, message: str) -> DeviceHealth:
    return DeviceHealth(unhealthy=True, reason=reason, message=message)
