"""Reuse domains: a name belongs to one grant per backend, whatever pool and namespace it comes through.

Pure. Two grants under one name would read each other's blocks, or misread them. Read next: rules.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from shared.errors import Cause
from shared.resources.kvcache import KVCachePool, KVCachePoolBinding


@dataclass(frozen=True, slots=True)
class Claim:
    """One grant's claim to a domain."""

    backend: str
    domain: str


class DomainHolders:
    """Who holds which domain, the oldest grant where two do."""

    def __init__(self, pools: Iterable[KVCachePool], bindings: Iterable[KVCachePoolBinding]) -> None:
        self._backends: Mapping[str, str] = {pool.name: pool.spec.backends[0] for pool in pools if pool.spec.backends}
        self._holders: dict[Claim, KVCachePoolBinding] = {}
        for binding in sorted(bindings, key=_age):
            claim = self.claim(binding)
            if claim is not None:
                self._holders.setdefault(claim, binding)

    def claim(self, binding: KVCachePoolBinding) -> Claim | None:
        """What a grant claims; None while its pool is not there."""
        backend = self._backends.get(binding.spec.pool_ref.name)
        return Claim(backend, binding.spec.domain.name or "default") if backend is not None else None

    def holder(self, binding: KVCachePoolBinding) -> KVCachePoolBinding | None:
        """Another grant that holds this one's domain; None when it is this one's."""
        claim = self.claim(binding)
        found = self._holders.get(claim) if claim is not None else None
        same = found is not None and (found.namespace, found.name) == (binding.namespace, binding.name)
        return None if same else found

    def causes(self, binding: KVCachePoolBinding) -> Iterator[Cause]:
        """Why a new grant may not have its domain."""
        found, claim = self.holder(binding), self.claim(binding)
        if found is not None and claim is not None:
            sentence = (
                f"domain {claim.domain!r} on backend {claim.backend!r} is held by KVCachePoolBinding "
                f"{found.namespace}/{found.name}; choose another name"
            )
            yield Cause("spec.domain.name", sentence, "FieldValueDuplicate")


def _age(binding: KVCachePoolBinding) -> tuple[float, str]:
    created = binding.metadata.creation_timestamp
    return (created.timestamp() if created else float("inf"), binding.uid)
