"""What a cache backend, a pool and a grant may say; each names the one above it, which must exist.

Pure. Facts: the reference operator's section 6. Read next: status.py, what is said back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from services.kvcache.domain.backend import backend_causes
from services.kvcache.domain.domains import DomainHolders
from shared.errors import Cause
from shared.events.kvcache import CacheUnbound
from shared.events.objects import KvcacheObjectApplied, KvcacheObjectRemoved
from shared.messages.base import Fact
from shared.resources.base import Resource
from shared.resources.kvcache import KVCacheBackend, KVCachePool, KVCachePoolBinding
from shared.store.names import LABEL
from shared.store.rules import Key, Lookup, WriteRules
from shared.units import parse_quantity

DEFAULT_DOMAIN = "default"


def _validate_backend(new: KVCacheBackend, old: KVCacheBackend | None, lookup: Lookup) -> list[Cause]:  # noqa: ARG001
    return list(backend_causes(new.spec, old.spec if old else None))


def _validate_pool(new: KVCachePool, old: KVCachePool | None, lookup: Lookup) -> list[Cause]:
    causes = list(_amount("spec.quota.total", new.spec.quota.total))
    if old is not None:
        if new.spec.backends != old.spec.backends:
            causes.append(_frozen("spec.backends"))
        return causes
    backend = new.spec.backends[0]
    if lookup("KVCacheBackend", "", backend) is None:
        causes.append(_missing("spec.backends[0]", "KVCacheBackend", backend))
    return causes


def _validate_binding(new: KVCachePoolBinding, old: KVCachePoolBinding | None, lookup: Lookup) -> list[Cause]:
    causes = list(_amount("spec.quota.ceiling", new.spec.quota.ceiling))
    if old is not None:
        return causes + list(_frozen_parts(new, old))
    pool, domain = new.spec.pool_ref.name, new.spec.domain.name or DEFAULT_DOMAIN
    problem = LABEL.problem(domain)
    if problem:
        causes.append(Cause("spec.domain.name", f"{domain!r} {problem}"))
    if lookup("KVCachePool", "", pool) is None:
        causes.append(_missing("spec.poolRef.name", "KVCachePool", pool))
    return causes


def _frozen_parts(new: KVCachePoolBinding, old: KVCachePoolBinding) -> Iterator[Cause]:
    parts: Sequence[tuple[str, object, object]] = (
        ("spec.poolRef.name", new.spec.pool_ref.name, old.spec.pool_ref.name),
        ("spec.domain.name", new.spec.domain.name, old.spec.domain.name),
        ("spec.domain.blockSize", new.spec.domain.block_size, old.spec.domain.block_size),
        ("spec.domain.dtype", new.spec.domain.dtype, old.spec.domain.dtype),
    )
    for field, now, before in parts:
        if now != before:
            yield _frozen(field)


def _default_binding(binding: KVCachePoolBinding) -> KVCachePoolBinding:
    if binding.spec.domain.name is not None:
        return binding
    domain = binding.spec.domain.model_copy(update={"name": DEFAULT_DOMAIN})
    return binding.model_copy(update={"spec": binding.spec.model_copy(update={"domain": domain})})


def _facts(old: Resource | None, new: Resource | None) -> tuple[Fact, ...]:
    subject = new or old
    assert subject is not None, "a write has an old or a new state"
    about = {
        "kind": subject.kind,
        "namespace": subject.namespace,
        "name": subject.name,
        "uid": subject.uid,
        "generation": subject.metadata.generation,
    }
    return (KvcacheObjectApplied(**about) if new is not None else KvcacheObjectRemoved(**about),)


def _binding_facts(old: KVCachePoolBinding | None, new: KVCachePoolBinding | None) -> tuple[Fact, ...]:
    facts = _facts(old, new)
    if new is None and old is not None:
        pool = old.spec.pool_ref.name
        facts += (CacheUnbound(namespace=old.namespace, name=old.name, pool=pool, uid=old.uid),)
    return facts


def _needs_backend(pool: KVCachePool) -> Sequence[Key]:
    return [("KVCacheBackend", "", name) for name in pool.spec.backends]


def _needs_pool(binding: KVCachePoolBinding) -> Sequence[Key]:
    return [("KVCachePool", "", binding.spec.pool_ref.name)]


def _amount(field: str, text: str) -> Iterator[Cause]:
    value = parse_quantity(text)
    if value <= 0:
        yield Cause(field, "must be more than 0")
    elif value.denominator != 1:
        yield Cause(field, f"{text} is not a whole number of bytes")


def _frozen(field: str) -> Cause:
    return Cause(field, "cannot be changed; delete the object and create it anew", "FieldValueForbidden")


def _missing(field: str, kind: str, name: str) -> Cause:
    return Cause(field, f'{kind} "{name}" not found; create it first', "FieldValueNotFound")


BACKEND = WriteRules(kind="KVCacheBackend", validate=_validate_backend, facts=_facts)
POOL = WriteRules(kind="KVCachePool", validate=_validate_pool, facts=_facts, needs=_needs_backend)
BINDING = WriteRules(
    kind="KVCachePoolBinding",
    default=_default_binding,
    validate=_validate_binding,
    facts=_binding_facts,
    needs=_needs_pool,
)

RULES: Mapping[str, WriteRules] = {rules.kind: rules for rules in (BACKEND, POOL, BINDING)}


def with_holders(holders: DomainHolders) -> Mapping[str, WriteRules]:
    """The rules for one write of a grant, knowing whose domains there are now."""

    def validate(new: KVCachePoolBinding, old: KVCachePoolBinding | None, lookup: Lookup) -> list[Cause]:
        causes = _validate_binding(new, old, lookup)
        return causes if old is not None else causes + list(holders.causes(new))

    checked: Any = validate
    return {**RULES, "KVCachePoolBinding": replace(BINDING, validate=checked)}
