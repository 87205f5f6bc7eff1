"""Errors and outcomes as Kubernetes' Status object.

One table (shared/errors.py) from code to HTTP; nothing here invents another. Read next: shared/errors.py.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from shared.errors import FACES, Code, Face, GpubusError

EXPIRED = Face(410, "Expired", "")
"""A revision or continue token that is too old: list again."""
_TOO_OLD = "expired"
_RETRIED = frozenset({Code.UNAVAILABLE, Code.RESOURCE_EXHAUSTED})
_RETRY_SECONDS = 1


def expired(message: str) -> GpubusError:
    """The error that answers 410."""
    return GpubusError(message, (), {_TOO_OLD: True})


def face_of(error: GpubusError) -> Face:
    """How it looks over HTTP."""
    return EXPIRED if error.fields.get(_TOO_OLD) else FACES[error.code]


def failure(error: GpubusError) -> dict[str, Any]:
    """The Status of an error."""
    face = face_of(error)
    causes = [{"reason": c.reason, "message": c.message, "field": c.field} for c in error.causes]
    details = {
        "name": error.fields.get("name"),
        "kind": error.fields.get("kind"),
        "group": error.fields.get("group"),
        "uid": error.fields.get("uid"),
        "causes": causes or None,
        "retryAfterSeconds": retry_after(error),
        "operationId": error.fields.get("operation_id"),
    }
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": error.message,
        "reason": face.reason,
        "details": {name: value for name, value in details.items() if value is not None},
        "code": face.status,
    }


def success(details: Mapping[str, Any]) -> dict[str, Any]:
    """The Status of a deletion that is done."""
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": dict(details)}


def retry_after(error: GpubusError) -> int | None:
    """Whole seconds for Retry-After; None when coming back does not help."""
    asked = error.fields.get("retry_after")
    if isinstance(asked, int | float):
        return max(1, math.ceil(asked))
    return _RETRY_SECONDS if error.code in _RETRIED else None
