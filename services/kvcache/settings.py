"""Settings of kvcache.

Read next: app.py.
"""

from __future__ import annotations

from pydantic import Field

from shared.settings import BaseServiceSettings


class KvcacheSettings(BaseServiceSettings):
    """What kvcache needs beside the base."""

    index_max_blocks: int = Field(
        default=2_000_000,
        description="Blocks the prefix index of one process keeps; about 100 bytes each when full. The oldest go first.",
        ge=1_000,
        le=100_000_000,
    )
