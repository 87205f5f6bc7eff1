"""Facts about keys and usage; the gateway publishes them.

Read next: services/gateway/domain/streaming.py.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from shared.messages.base import Fact


class KeyIssued(Fact):
    """When: an API key was created. Who: gateway. Key: key name."""

    AGGREGATE: ClassVar[str] = "key"
    FACT: ClassVar[str] = "issued"
    namespace: str
    name: str
    uid: str
    prefix: str = ""


class KeyRevoked(Fact):
    """When: an API key was deleted, disabled or expired. Who: gateway. Key: key name."""

    AGGREGATE: ClassVar[str] = "key"
    FACT: ClassVar[str] = "revoked"
    namespace: str
    name: str
    uid: str
    reason: str = ""


class UsageRow(BaseModel):
    """Requests of one key, model, minute and outcome, summed."""

    model_config = ConfigDict(frozen=True, extra="ignore", alias_generator=to_camel, populate_by_name=True)

    key_uid: str
    namespace: str
    model: str
    minute: int = Field(description="Unix minutes.")
    outcome: str = Field(description="ok, client_error, upstream_error, cancelled.")
    requests: int
    input_tokens: int = 0
    cached_input_tokens: int = 0
    output_tokens: int = 0
    duration_ms: int = 0


class RequestMetered(Fact):
    """When: a gateway worker flushed its usage. Who: gateway. Key: worker boot id."""

    AGGREGATE: ClassVar[str] = "request"
    FACT: ClassVar[str] = "metered"
    name: str = Field(description="Worker boot id.")
    batch: int = Field(description="Rises per worker; with the boot id it dedupes.")
    rows: list[UsageRow] = Field(default_factory=list)
