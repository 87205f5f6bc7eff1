"""What a kind's owner adds to the generic write: defaults, validation, facts. All pure functions.

Read next: shared/store/objects.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from shared.errors import Cause
from shared.messages.base import Fact
from shared.store.names import SUBDOMAIN, NameFormat

Key = tuple[str, str, str]
"""(kind, namespace, name)."""
Lookup = Callable[[str, str, str], dict[str, Any] | None]
"""Reads a document that `needs` named, as clients see it; None when there is none."""


def _same(resource: Any) -> Any:
    return resource


def _no_causes(new: Any, old: Any, lookup: Lookup) -> list[Cause]:  # noqa: ARG001 - the shape of every validate
    return []


def _no_facts(old: Any, new: Any) -> tuple[Fact, ...]:  # noqa: ARG001 - the shape of every facts
    return ()


def _no_needs(new: Any) -> Sequence[Key]:  # noqa: ARG001 - the shape of every needs
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteRules:
    """One kind. Resources are the kind's model; `old` or `new` is None at creation or removal."""

    kind: str
    default: Callable[[Any], Any] = _same
    """resource -> resource, after decoding; also sets the initial status."""
    validate: Callable[[Any, Any, Lookup], list[Cause]] = _no_causes
    """(new, old, lookup) -> everything that is wrong; also when only metadata changed."""
    facts: Callable[[Any, Any], tuple[Fact, ...]] = _no_facts
    """(old, new) -> what happened; a deletion that finalizers hold is (old, new with deletionTimestamp)."""
    needs: Callable[[Any], Sequence[Key]] = _no_needs
    """new -> documents that `validate` looks up."""
    finalizers: tuple[str, ...] = ()
    """Put on every new object; the owner takes them off when its clean-up is done."""
    names: NameFormat = SUBDOMAIN
