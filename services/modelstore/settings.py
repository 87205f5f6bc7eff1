"""Settings of modelstore: the controller's and the agent's.

Read next: app.py, agent/app.py.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from shared.settings import BaseServiceSettings, Port

GIB = 1 << 30


class ModelstoreSettings(BaseServiceSettings):
    """What the controller needs beside the base."""

    hub_host: str = Field(default="127.0.0.1", description="Address of the local hub.")
    hub_port: Port = Field(default=0, description="Port of the local hub; 0 serves none.")
    hub_url: str = Field(default="", description="How nodes reach the local hub; empty: http://hub_host:hub_port.")
    simulated_hub: bool = Field(
        default=False, description="Repositories that the local hub does not hold resolve to made-up manifests."
    )
    simulated_model_size: int = Field(default=15 * GIB, description="Bytes of a made-up model.", ge=1, le=1 << 50)
    hub_timeout_seconds: float = Field(default=20.0, description="The longest wait for a hub's answer.", ge=1, le=300)

    @property
    def hub_endpoint(self) -> str:
        """Base URL of the local hub, as nodes are told; empty when none is served."""
        if self.hub_url:
            return self.hub_url.rstrip("/")
        return f"http://{self.hub_host}:{self.hub_port}" if self.hub_port else ""


class ModelstoreAgentSettings(BaseServiceSettings):
    """What the node part needs beside the base."""

    runtime: Literal["process", "simulated"] = Field(
        default="process", description="simulated: deliveries take the time and write no bytes."
    )
    download_concurrency: int = Field(default=4, description="Files of one node fetched at once.", ge=1, le=64)
    keep_free_bytes: int = Field(
        default=64 << 20, description="Disk space that deliveries leave free.", ge=0, le=1 << 50
    )
    stall_seconds: float = Field(
        default=30.0, description="A transfer that stands still this long is tried again.", ge=1, le=600
    )
