"""Facts about shared cache; kvcache publishes them.

Read next: services/kvcache/domain/index.py.
"""

from __future__ import annotations

from typing import ClassVar

from shared.messages.base import Fact


class CachePoolReady(Fact):
    """When: a pool can be granted from. Who: kvcache. Key: pool name."""

    AGGREGATE: ClassVar[str] = "cache-pool"
    FACT: ClassVar[str] = "ready"
    name: str
    uid: str = ""


class CachePoolDegraded(Fact):
    """When: a pool lost its store. Who: kvcache. Key: pool name."""

    AGGREGATE: ClassVar[str] = "cache-pool"
    FACT: ClassVar[str] = "degraded"
    name: str
    uid: str = ""
    reason: str = ""


class CacheBound(Fact):
    """When: a namespace was granted a share of a pool. Who: kvcache. Key: binding name."""

    AGGREGATE: ClassVar[str] = "cache"
    FACT: ClassVar[str] = "bound"
    namespace: str
    name: str
    pool: str = ""
    uid: str = ""


class CacheUnbound(Fact):
    """When: a grant was taken back. Who: kvcache. Key: binding name."""

    AGGREGATE: ClassVar[str] = "cache"
    FACT: ClassVar[str] = "unbound"
    namespace: str
    name: str
    pool: str = ""
    uid: str = ""
