"""Settings of discovery: the controller's and the agent's.

Read next: app.py, agent/app.py.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from shared.settings import BaseServiceSettings


class DiscoverySettings(BaseServiceSettings):
    """What the controller needs beside the base."""

    silence_seconds: float = Field(
        default=3.0,
        description="A node not heard for this long is lost; agents beat every second.",
        ge=2,
        le=600,
    )


class DiscoveryAgentSettings(BaseServiceSettings):
    """What the node part needs beside the base."""

    runtime: Literal["process", "simulated"] = Field(
        default="process", description="How Pods run on this host; reported, used by the deployer's agent."
    )
    look_seconds: float = Field(default=15.0, description="Seconds between two looks at the hardware.", ge=0.5, le=3600)
