"""Why an artifact is not resolved and why a copy is not ready: words that users learn once, and how soon to try again.

Owns the retry schedules. Pure. Read next: services/modelstore/domain/lifecycle.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

RESOLVED = "Resolved"
"""Condition: the source was resolved to a commit and a manifest."""
DEGRADED = "Degraded"
"""Condition: what was resolved can no longer be confirmed at the source."""


class ResolveReason(StrEnum):
    """Reasons of the condition Resolved."""

    RESOLVED = "Resolved"
    SECRET_CHANGED = "SecretChanged"  # noqa: S105 - a reason
    SETTING_CHANGED = "SettingChanged"
    REVISION_NOT_FOUND = "RevisionNotFound"
    ACCESS_DENIED = "AccessDenied"
    SOURCE_UNAVAILABLE = "SourceUnavailable"
    EMPTY_MANIFEST = "EmptyManifest"
    INVALID_MANIFEST = "InvalidManifest"
    DIGEST_MISMATCH = "DigestMismatch"
    SECRET_NOT_FOUND = "SecretNotFound"  # noqa: S105 - a reason
    NOT_SERVED_YET = "NotServedYet"


class DeliveryReason(StrEnum):
    """Reasons of a Failed copy on a node."""

    INVALID_REQUEST = "InvalidRequest"
    ACCESS_DENIED = "AccessDenied"
    SOURCE_UNAVAILABLE = "SourceUnavailable"
    INTEGRITY_MISMATCH = "IntegrityMismatch"
    INSUFFICIENT_CAPACITY = "InsufficientCapacity"


@dataclass(frozen=True, slots=True)
class Backoff:
    """Seconds before the n-th retry: `first`, doubled each time, at most `longest`."""

    first: float
    longest: float

    def pause(self, failures: int) -> float:
        """After that many failures in a row, from 1."""
        return min(self.longest, self.first * 2.0 ** min(failures - 1, 32))


_MINUTE, _HOUR = 60.0, 3600.0
_RESOLVE: dict[str, Backoff] = {
    # A hub that is away comes back by itself; the reference operator asks each minute.
    ResolveReason.SOURCE_UNAVAILABLE: Backoff(2.0, _MINUTE),
    ResolveReason.SECRET_NOT_FOUND: Backoff(5.0, _MINUTE),
}
_RESOLVE_SLOW = Backoff(_MINUTE, 10 * _MINUTE)
"""Somebody has to change something at the source first."""
_DELIVER: dict[str, Backoff] = {
    DeliveryReason.SOURCE_UNAVAILABLE: Backoff(5.0, 5 * _MINUTE),
    DeliveryReason.INSUFFICIENT_CAPACITY: Backoff(15.0, 5 * _MINUTE),
}
_DELIVER_SLOW = Backoff(_MINUTE, _HOUR)
"""As the reference operator has it: one minute, doubling to one hour."""


def resolve_pause(reason: str, failures: int) -> float:
    """Seconds until a source is asked again."""
    return _RESOLVE.get(reason, _RESOLVE_SLOW).pause(failures)


def deliver_pause(reason: str, failures: int) -> float:
    """Seconds until a delivery is tried again."""
    return _DELIVER.get(reason, _DELIVER_SLOW).pause(failures)
