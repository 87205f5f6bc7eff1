"""Writes of whole objects, for every kind alike: what REST, the bus command and kubectl end in at the owner.

Owns metadata, generation, finalizers, dry run, stale revisions, idempotency. A kind's own meaning is in its WriteRules.
Must not know any kind. Read next: services/<service>/domain/rules.py.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from shared.clock import Clock
from shared.commands.objects import WriteAnswer, WriteObject
from shared.errors import GpubusError, NotFound, Permanent, Raced, Unimplemented
from shared.resources.kinds import KINDS, Kind
from shared.store import decisions
from shared.store.decisions import Outcome
from shared.store.documents import Commit, Committed, Delete, Document, InboxMark, Put
from shared.store.rules import WriteRules

if TYPE_CHECKING:
    from shared.store.client import Store

HANDLER = "write-object"
"""Name of the inbox that holds the answers."""
_ATTEMPTS = 5
_JITTER_SECONDS = 0.02
_KEPT_OBJECT_LIMIT = 64 * 1024
"""Larger objects are read again for a repeat rather than kept twice."""


@dataclass(frozen=True, slots=True)
class _Loaded:
    """What one attempt decides on."""

    current: Document | None
    namespace: Document | None
    needed: Mapping[tuple[str, str, str], Document | None]

    def lookup(self, kind: str, namespace: str, name: str) -> dict[str, Any] | None:
        document = self.needed[kind, namespace, name]
        return document.json() if document is not None else None


class ObjectWriter:
    """Answers WriteObject for the kinds it has rules for."""

    def __init__(self, store: Store, rules: Mapping[str, WriteRules], clock: Clock) -> None:
        self._store = store
        self._rules = rules
        self._clock = clock

    async def write(self, request: WriteObject) -> WriteAnswer:
        """Make the write, or say why not: every GpubusError becomes the answer's `error`.

        A request with an idempotency key is made once: a repeat within 15 minutes gets the first answer, refusals too.
        """
        try:
            repeated = await self._repeated(request)
            return repeated or await self._written(request)
        except Permanent as error:
            answer = _refusal(request, error)
            return await self._kept(request, answer)
        except GpubusError as error:
            return _refusal(request, error)

    async def _written(self, request: WriteObject) -> WriteAnswer:
        kind, rules = self._known(request)
        for attempt in range(_ATTEMPTS):
            outcome = await self._decide(request, kind, rules)
            try:
                return await self._commit(request, outcome)
            except Raced:
                if attempt == _ATTEMPTS - 1:
                    raise
            await asyncio.sleep(random.uniform(0, _JITTER_SECONDS * (attempt + 1)))  # noqa: S311 - spreads retries
        raise AssertionError("the last attempt returns or raises")

    def _known(self, request: WriteObject) -> tuple[Kind, WriteRules]:
        kind, rules = KINDS.get(request.kind), self._rules.get(request.kind)
        if kind is None or rules is None:
            raise NotFound(f"no kind {request.kind} here", (), {"kind": request.kind})
        if kind.read_only and request.verb in {"create", "replace"}:
            raise Unimplemented(f"{kind.plural} are kept by the system; they can be read and deleted, not written")
        return kind, rules

    async def _decide(self, request: WriteObject, kind: Kind, rules: WriteRules) -> Outcome:
        new = decisions.prepare(request, kind, rules)
        loaded = await self._load(request, kind, rules, new)
        requires = decisions.check_namespace(request, kind, loaded.namespace)
        now = self._clock.now()
        if request.verb == "create":
            outcome = decisions.create(request, kind, rules, new, loaded.current, loaded.lookup, now)
            return replace(outcome, requires=requires)
        current = decisions.present(request, kind, loaded.current)
        if request.verb == "delete":
            return decisions.delete(request, kind, rules, current, now)
        if request.verb == "status":
            return decisions.replace_status(request, kind, rules, current)
        return decisions.replace(request, kind, rules, new, current, loaded.lookup)

    async def _load(self, request: WriteObject, kind: Kind, rules: WriteRules, new: Any) -> _Loaded:
        own = (request.kind, request.namespace, request.name)
        place = ("Namespace", "", request.namespace)
        needed = set(rules.needs(new)) if new is not None else set()
        wanted = {own, *needed} | ({place} if kind.namespaced else set())
        found = await self._store.get_many(wanted)
        return _Loaded(found[own], found.get(place), {key: found[key] for key in needed})

    async def _commit(self, request: WriteObject, outcome: Outcome) -> WriteAnswer:
        created = outcome.expect is None
        answer = WriteAnswer(object=outcome.shown, operation_id=request.operation_id, created=created)
        if request.dry_run or outcome.unchanged:
            return answer
        key = (request.kind, request.namespace, request.name)
        commit = Commit(
            puts=(Put(*key, outcome.body, outcome.expect),) if outcome.body is not None else (),
            deletes=(Delete(*key, outcome.expect or 0),) if outcome.body is None else (),
            requires=outcome.requires,
            facts=outcome.facts,
            release=request.verb == "delete" or outcome.body is None,
            deadline_us=request.deadline_us,
        )
        if request.idempotency_key:
            commit = replace(commit, mark=InboxMark(HANDLER, request.idempotency_key, _small(answer)))
        done = await self._store.commit(commit)
        return await self._first(request, done) if done.duplicate else _with_revision(answer, done)

    async def _repeated(self, request: WriteObject) -> WriteAnswer | None:
        if not request.idempotency_key or request.dry_run:
            return None
        taken = await self._store.inbox_entry(HANDLER, request.idempotency_key)
        return None if taken is None else await self._first(request, taken)

    async def _first(self, request: WriteObject, taken: Committed) -> WriteAnswer:
        """The answer that the first delivery got."""
        answer = WriteAnswer.model_validate(taken.answer or {})
        if answer.object is None and (taken.answer or {}).get("large"):
            document = await self._store.get(request.kind, request.namespace, request.name)
            return answer.model_copy(update={"object": document.json() if document else None})
        return _with_revision(answer, taken)

    async def _kept(self, request: WriteObject, answer: WriteAnswer) -> WriteAnswer:
        """Keep a refusal for repeats; a store that is away keeps nothing, and then the repeat is judged anew."""
        if not request.idempotency_key or request.dry_run:
            return answer
        mark = InboxMark(HANDLER, request.idempotency_key, answer.model_dump(mode="json", by_alias=True))
        try:
            done = await self._store.commit(Commit(mark=mark, release=True))
        except GpubusError:
            return answer
        return await self._first(request, done) if done.duplicate else answer


def _refusal(request: WriteObject, error: GpubusError) -> WriteAnswer:
    return WriteAnswer(error=error.to_dict(), operation_id=request.operation_id)


def _small(answer: WriteAnswer) -> dict[str, Any]:
    body = answer.model_dump(mode="json", by_alias=True)
    if answer.object is not None and len(answer.model_dump_json()) > _KEPT_OBJECT_LIMIT:
        body |= {"object": None, "large": True}
    return body


def _with_revision(answer: WriteAnswer, done: Committed) -> WriteAnswer:
    if answer.object is None or not done.revisions:
        return answer
    metadata = {**answer.object["metadata"], "resourceVersion": str(done.revisions[-1])}
    return answer.model_copy(update={"object": {**answer.object, "metadata": metadata}})
