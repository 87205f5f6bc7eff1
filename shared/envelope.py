"""The envelope: CloudEvents 1.0 structured JSON with our correlation extensions.

Owns the wire form of stored messages (facts, reports, commands). Must not know any transport.
Read next: shared/bus/router.py.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

CONTENT_TYPE = "application/cloudevents+json"


class Envelope(BaseModel):
    """One message as it travels; `data` is the message's own JSON."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    specversion: str = "1.0"
    id: str = Field(description="Unique for ever: `<epoch>.<outbox entry id>` for facts, UUIDv7 for commands of users.")
    source: str = Field(description="`/services/<service>/<instance>` or `/nodes/<node>/<agent>`.")
    type: str = Field(description="`gpubus.<aggregate>.<fact>.v1` and alike.")
    subject: str = Field(default="", description="What it is about: `<kind or aggregate>/<namespace>/<name>`.")
    time: datetime = Field(description="The sender's wall clock; shown, never compared.")
    datacontenttype: str = "application/json"
    correlationid: str = Field(
        default="", description="The operation this belongs to; the gateway returned it to the user."
    )
    causationid: str = Field(default="", description="The id of the message that led to this one.")
    resourceversion: str = Field(default="", description="Revision of the document this fact was committed with.")
    epoch: str = Field(default="", description="The store's epoch in which it was committed.")
    traceparent: str = Field(default="", description="W3C trace context.")
    data: dict[str, Any]
