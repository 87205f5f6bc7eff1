"""Server-side apply: who set which field, who may change it, and what goes when its last applier lets go.

Follows Kubernetes: an applier owns exactly what it applied; a plain write takes over what it changed; a field that two
want to have different is a conflict unless forced. Must not know kinds. Read next: field_sets.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from services.gateway.domain.field_sets import (
    SELF,
    FieldSet,
    Path,
    fields_of,
    from_fields_v1,
    key_fields,
    list_key,
    missing,
    shown,
    to_fields_v1,
    value_at,
    without,
)
from shared.clock import rfc3339
from shared.errors import Aborted, Cause

APPLY, UPDATE = "Apply", "Update"
_MAX_UPDATERS = 10
_ANCIENT = "ancient-changes"
"""Where Kubernetes, too, puts the fields of writers that are too many to keep."""


@dataclass(frozen=True, slots=True)
class Owner:
    """One entry of managedFields."""

    manager: str
    operation: str
    api_version: str
    time: str
    fields: FieldSet
    subresource: str = ""

    @property
    def identity(self) -> tuple[str, str, str]:
        """What makes two entries the same."""
        return (self.manager, self.operation, self.subresource)


@dataclass(frozen=True, slots=True)
class Writer:
    """Who writes now."""

    manager: str
    api_version: str
    now: datetime


def owners_of(managed: Any) -> list[Owner]:
    """The entries of managedFields; ones that are not understood are left out."""
    found = []
    for entry in managed if isinstance(managed, Sequence) else ():
        if isinstance(entry, Mapping) and entry.get("operation") in {APPLY, UPDATE}:
            texts = {
                name: str(entry.get(name) or "")
                for name in ("manager", "operation", "apiVersion", "time", "subresource")
            }
            fields = from_fields_v1(entry.get("fieldsV1"))
            found.append(
                Owner(
                    texts["manager"],
                    texts["operation"],
                    texts["apiVersion"],
                    texts["time"],
                    fields,
                    texts["subresource"],
                )
            )
    return found


def applied(
    live: Mapping[str, Any] | None, config: Mapping[str, Any], writer: Writer, *, force: bool
) -> dict[str, Any]:
    """The live object (None: there is none yet) after `writer` applied its configuration.

    Raises:
        Aborted: others own fields that it would change; names them all.
    """
    config = _without_nulls(config)
    live = live or {}
    owners = owners_of((live.get("metadata") or {}).get("managedFields"))
    wanted = fields_of(config)
    mine = Owner(writer.manager, APPLY, writer.api_version, rfc3339(writer.now), wanted)
    before = next((owner.fields for owner in owners if owner.identity == mine.identity), frozenset())
    others = [owner for owner in owners if owner.identity != mine.identity]
    conflicts = [(owner, path) for owner in others for path in _conflicts(owner.fields, wanted, live, config)]
    if conflicts and not force:
        raise _conflict(conflicts)
    taken = {path for _, path in conflicts}
    others = [replace(owner, fields=_minus(owner.fields, taken)) for owner in others]
    kept = _closure(path for owner in others for path in owner.fields)
    dropped = [path for path in before - wanted if path not in kept and path not in _closure(wanted)]
    merged = _merged(without(dict(live), dropped), config)
    return _with_owners(merged, live, [*others, mine])


def updated(old: Mapping[str, Any] | None, new: Mapping[str, Any], writer: Writer) -> dict[str, Any]:
    """The new object of a plain write, with its changes owned by the writer; managedFields sent empty start anew."""
    old = old or {}
    sent = (new.get("metadata") or {}).get("managedFields")
    owners = owners_of((old.get("metadata") or {}).get("managedFields") if sent is None else sent)
    before, after = fields_of(old), fields_of(new)
    changed = {path for path in after if path not in before or value_at(old, path) != value_at(new, path)}
    gone = before - after
    if not changed and not gone and sent is None:
        return _with_owners(new, old, owners)
    mine = Owner(writer.manager, UPDATE, writer.api_version, rfc3339(writer.now), frozenset(changed))
    known = next((owner for owner in owners if owner.identity == mine.identity), None)
    others = [replace(o, fields=_minus(o.fields, changed | gone)) for o in owners if o is not known]
    if known is not None:
        kept = _minus(known.fields, gone) | changed
        mine = replace(mine, fields=frozenset(kept), time=mine.time if changed else known.time)
    return _with_owners(new, old, _capped([*others, mine]))


def _conflicts(
    theirs: FieldSet, wanted: FieldSet, live: Mapping[str, Any], config: Mapping[str, Any]
) -> Iterable[Path]:
    """Their fields that the configuration would change."""
    for path in sorted(wanted):
        now, then = value_at(live, path), value_at(config, path)
        if path[-1] == SELF or _equal(now, then) or _mergeable(now, then):
            continue
        above = {path[:length] for length in range(1, len(path) + 1)} & theirs
        yield from (other for other in above if not _mergeable(value_at(live, other), value_at(config, other)))
        yield from (
            other for other in theirs if len(other) > len(path) and other[: len(path)] == path and other[-1] != SELF
        )


def _equal(one: Any, other: Any) -> bool:
    return not missing(one) and bool(one == other)


def _mergeable(live: Any, config: Any) -> bool:
    """Entries beside each other in a mapping, or elements with names in a list, are no conflict."""
    if isinstance(config, Mapping):
        return isinstance(live, Mapping)
    key = list_key(live)
    return key is not None and (config == [] or list_key(config) == key)


def _minus(fields: FieldSet, paths: Iterable[Path]) -> FieldSet:
    """Without the paths and everything below them."""
    roots = set(paths)
    if not roots:
        return fields
    return frozenset(p for p in fields if not any(p[:length] in roots for length in range(1, len(p) + 1)))


def _closure(paths: Iterable[Path]) -> set[Path]:
    """The paths, everything above them, and the elements that they lie in."""
    closed: set[Path] = set()
    for path in paths:
        for length in range(1, len(path) + 1):
            closed.add(path[:length])
            if path[length - 1].startswith("k:"):
                closed.update((*path[:length], step) for step in (SELF, *key_fields(path[length - 1])))
    return closed


def _merged(live: Any, config: Any) -> Any:
    if isinstance(live, Mapping) and isinstance(config, Mapping):
        merged = dict(live)
        for name, value in config.items():
            merged[name] = _merged(live[name], value) if name in live else value
        return merged
    key = list_key(live)
    if key is None or not _mergeable(live, config):
        return config
    wanted = {item[key]: item for item in config}
    kept = [_merged(item, wanted.pop(item[key])) if item[key] in wanted else item for item in live]
    return [*kept, *wanted.values()]


def _without_nulls(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _without_nulls(item) for name, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


def _with_owners(body: Mapping[str, Any], old: Mapping[str, Any], owners: Sequence[Owner]) -> dict[str, Any]:
    """The body with managedFields; entries that own the same as before keep their time, so that nothing is a change."""
    before = {owner.identity: owner for owner in owners_of((old.get("metadata") or {}).get("managedFields"))}
    timed = []
    for owner in owners:
        known = before.get(owner.identity)
        time = known.time if known is not None and known.fields == owner.fields else owner.time
        if owner.fields or owner.operation == APPLY:
            timed.append(replace(owner, time=time))
    entries = [_entry(owner) for owner in sorted(timed, key=lambda o: (o.operation, o.time, o.manager, o.subresource))]
    metadata = {name: value for name, value in (body.get("metadata") or {}).items() if name != "managedFields"}
    return {**body, "metadata": {**metadata, **({"managedFields": entries} if entries else {})}}


def _entry(owner: Owner) -> dict[str, Any]:
    entry = {
        "manager": owner.manager,
        "operation": owner.operation,
        "apiVersion": owner.api_version,
        "time": owner.time,
        "fieldsType": "FieldsV1",
        "fieldsV1": to_fields_v1(owner.fields),
    }
    return {**entry, "subresource": owner.subresource} if owner.subresource else entry


def _capped(owners: list[Owner]) -> list[Owner]:
    updaters = [owner for owner in owners if owner.operation == UPDATE]
    if len(updaters) <= _MAX_UPDATERS:
        return owners
    old = sorted(updaters, key=lambda owner: owner.time)[: len(updaters) - _MAX_UPDATERS + 1]
    fields = frozenset(path for owner in old for path in owner.fields)
    ancient = Owner(_ANCIENT, UPDATE, old[-1].api_version, old[-1].time, fields)
    return [*(owner for owner in owners if owner not in old), ancient]


def _conflict(conflicts: Sequence[tuple[Owner, Path]]) -> Aborted:
    causes = tuple(
        Cause(shown(path), f'conflict with "{owner.manager}" ({owner.operation})', "FieldManagerConflict")
        for owner, path in conflicts
    )
    named = "; ".join(f"{cause.field}: {cause.message}" for cause in causes[:10])
    count = f"{len(conflicts)} conflict{'s' if len(conflicts) > 1 else ''}"
    return Aborted(f"Apply failed with {count}: {named}; apply with force to take the fields over", causes)
