"""WriteObject: the one answered write, for every kind; and its answer.

Read next: shared/store/objects.py.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field

from shared.messages.base import Message


class WriteAnswer(Message):
    """The stored object, or the refusal."""

    object: dict[str, Any] | None = Field(
        default=None, description="As stored, with resourceVersion; None when it is gone."
    )
    error: dict[str, Any] | None = Field(default=None, description="GpubusError.to_dict().")
    operation_id: str = ""
    created: bool = False


class WriteObject(Message):
    """Create, replace or delete one object; sent by the gateway to the kind's owner and never stored."""

    REQUEST: ClassVar[str] = "write-object"
    verb: Literal["create", "replace", "delete", "status"]
    kind: str
    namespace: str = ""
    name: str
    object: dict[str, Any] | None = None
    expected_revision: int | None = Field(default=None, description="None: whatever is stored.")
    expected_uid: str = ""
    dry_run: bool = False
    field_manager: str = ""
    user: str = ""
    idempotency_key: str = Field(
        default="", description="Principal, key and body hash; a repeat returns the stored answer."
    )
    deadline_us: int | None = Field(default=None, description="Redis TIME in microseconds after which it must not run.")
    operation_id: str = ""
    propagation: Literal["Background", "Foreground", "Orphan"] = "Background"
    grace_period_seconds: int | None = None
