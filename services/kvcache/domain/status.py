"""What is said of cache objects that are stored and not served yet, and the warnings that hold all the same.

Pure. Read next: ../handlers.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from fractions import Fraction
from typing import TypeVar

from services.kvcache.domain.domains import DomainHolders
from shared.resources.base import Condition, Status, set_condition
from shared.resources.kvcache import KVCacheBackend, KVCachePool, KVCachePoolBinding
from shared.units import format_quantity, parse_quantity

R = TypeVar("R", KVCacheBackend, KVCachePool, KVCachePoolBinding)

NOT_SERVED_YET = "NotServedYet"
_SENTENCE = "stored and validated; cache stores and connectors are not served by this version yet"


def backend_status(backend: KVCacheBackend, now: datetime) -> KVCacheBackend:
    """The backend with its conditions."""
    return _with(backend, [_not_served()], now)


def pool_status(pool: KVCachePool, bindings: Iterable[KVCachePoolBinding], now: datetime) -> KVCachePool:
    """The pool with its conditions; granting more than there is is allowed and said."""
    granted = sum(
        (parse_quantity(b.spec.quota.ceiling) for b in bindings if b.spec.pool_ref.name == pool.name), Fraction(0)
    )
    total = parse_quantity(pool.spec.quota.total)
    if granted > total:
        sentence = f"ceilings sum to {format_quantity(int(granted))}, the total is {format_quantity(int(total))}"
        within = Condition(type="QuotaWithinTotal", status="False", reason="Oversubscribed", message=sentence)
    else:
        within = Condition(type="QuotaWithinTotal", status="True", reason="WithinTotal")
    return _with(pool, [_not_served(), within], now)


def binding_status(binding: KVCachePoolBinding, holders: DomainHolders, now: datetime) -> KVCachePoolBinding:
    """The grant with its conditions; a domain that two took at the same moment belongs to the older one."""
    other = holders.holder(binding)
    if other is not None:
        sentence = f"held by KVCachePoolBinding {other.namespace}/{other.name}; delete one of the two"
        exclusive = Condition(type="DomainExclusive", status="False", reason="HeldByOther", message=sentence)
    else:
        exclusive = Condition(type="DomainExclusive", status="True", reason="Exclusive")
    return _with(binding, [_not_served(), exclusive], now)


def _not_served() -> Condition:
    return Condition(type="Ready", status="False", reason=NOT_SERVED_YET, message=_SENTENCE)


def _with(resource: R, told: Iterable[Condition], now: datetime) -> R:
    status: Status = resource.status
    generation = resource.metadata.generation or None
    conditions = status.conditions
    for condition in told:
        conditions = set_condition(conditions, condition.model_copy(update={"observed_generation": generation}), now)
    ordered = sorted(conditions, key=lambda condition: condition.type)
    new = status.model_copy(update={"conditions": ordered, "observed_generation": generation})
    return resource.model_copy(update={"status": new})
