"""Names and identities of replicas, computed so that doing a thing twice gives the same thing.

Pure. Read next: plan.py.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from shared.ids import derived_id

LABEL_LIMIT = 63
"""RFC 1035; derived names that become host names must keep to it."""
MEMBER_SUFFIX = 6
"""Length of `-r<replica>-m<member>` with single digits, as the reference counts it."""


def role_name(deployment: str, role: str) -> str:
    """What everything of one role is called."""
    return f"{deployment}-{role}"


def replica_name(deployment: str, role: str, ordinal: int, attempt: int = 0) -> str:
    """Name of the Pod and of the Workload of one attempt at one replica."""
    suffix = f"-{attempt}" if attempt else ""
    return f"{role_name(deployment, role)}-r{ordinal}{suffix}"


def workload_uid(owner_uid: str, role: str, ordinal: int, attempt: int, ask: str) -> str:
    """Uid of the Workload that asks for `ask` (a digest) for one attempt: submitting it twice is submitting it once."""
    return derived_id("workload", owner_uid, role, str(ordinal), str(attempt), ask)


def pod_workload_uid(pod_uid: str) -> str:
    """Uid of the Workload of a Pod that belongs to no deployment."""
    return derived_id("workload", pod_uid)


def digest(parts: Mapping[str, Any]) -> str:
    """A short digest of JSON values; equal values in any order of keys give the same."""
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
