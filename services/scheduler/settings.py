"""Settings of the scheduler.

Read next: app.py.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from shared.settings import BaseServiceSettings


class SchedulerSettings(BaseServiceSettings):
    """What the scheduler needs beside the base."""

    placement: Literal["binpack", "spread"] = Field(
        default="binpack", description="Fill nodes one after the other, or spread over them."
    )
    patience_seconds: float = Field(
        default=300.0,
        description="Waiting time after which one node of a pool is kept for the longest waiting workload; 0 never.",
        ge=0,
        le=86_400,
    )
    batch: int = Field(default=50, description="Admissions in one commit.", ge=1, le=100)
    cycle_admissions: int = Field(default=200, description="Admissions of one cycle.", ge=1, le=2000)
    audit_seconds: float = Field(
        default=30.0, description="Time between two comparisons of all ledgers with the documents.", ge=1, le=3600
    )
