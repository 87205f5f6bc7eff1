"""Settings of the deployer: the controller's and the agent's.

Read next: app.py, agent/app.py.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from shared.settings import BaseServiceSettings


class DeployerSettings(BaseServiceSettings):
    """What the controller needs beside the base."""

    replace_after_seconds: float = Field(
        default=0.0,
        description="How long a node may be lost before its replicas are made elsewhere; the loss itself takes 3 s.",
        ge=0,
        le=86400,
    )
    resync_seconds: float = Field(
        default=45.0, description="Seconds between two comparisons of everything with the store.", ge=1, le=60
    )


class DeployerAgentSettings(BaseServiceSettings):
    """What the node part needs beside the base."""

    runtime: Literal["process", "simulated"] = Field(default="process", description="How Pods run on this host.")
    allow_process: bool = Field(
        default=True, description="Whether Pods may run as processes here; a host that joins must say so."
    )
    pod_host: str = Field(
        default="", description="Address that engines bind; empty: the one that this host has towards the bus."
    )
    pod_address: str = Field(
        default="", description="Address under which others reach the engines; empty: the one they bind."
    )
    pod_log_bytes: int = Field(
        default=16 * 1024 * 1024, description="Size above which a Pod's log is cut.", ge=65536, le=1 << 30
    )
    engine_start_seconds: float = Field(
        default=0.0, description="What a simulated engine takes to become ready (simulated runtime).", ge=0, le=3600
    )
