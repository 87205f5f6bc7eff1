"""Workload documents: taking submissions, ending what is over, cleaning up what nobody else ends.

Loads, lets the domain decide, commits once. Read next: ../domain/intake.py.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress

from services.scheduler.domain import facts, intake
from services.scheduler.domain.cleanup import Surroundings, cleanup
from services.scheduler.domain.intake import Ending
from services.scheduler.domain.ledger import release
from services.scheduler.store.admissions import changed, counters
from services.scheduler.store.writes import ATTEMPTS, commit
from shared.clock import Clock, rfc3339
from shared.commands.workload import CancelWorkload, SubmitWorkload
from shared.errors import FailedPrecondition, InvalidArgument, NotFound, Raced
from shared.events.workload import WorkloadHeld
from shared.faults import point
from shared.resources.workload import Workload
from shared.store import keys
from shared.store.client import Store
from shared.store.documents import About, Assign, Commit, Delete, Document, InboxMark, Put, Require
from shared.telemetry.logging import get_logger
from shared.telemetry.tracing import current_cause

KIND = "Workload"
_CANCELLED = "cancelled"
"""Table of uids that were cancelled before they were submitted: two commands may overtake each other."""
log = get_logger(__name__)


class WorkloadStore:
    """Workloads of every namespace."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._cancelled = keys.table(store.service, _CANCELLED)

    async def submit(self, command: SubmitWorkload, mark: InboxMark) -> None:
        """Take a submission once.

        Raises:
            InvalidArgument: its spec is wrong. NotFound, FailedPrecondition: its namespace is not there or going.
            AlreadyExists: its name belongs to another workload.
        """
        await self._decided(lambda: self._submit(command, mark))

    async def _submit(self, command: SubmitWorkload, mark: InboxMark) -> None:
        namespace = await self._store.get("Namespace", "", command.namespace)
        if namespace is None:
            name = command.namespace
            raise NotFound(f'namespace "{name}" not found; create it with: kubectl create namespace {name}')
        if namespace.deleting:
            raise FailedPrecondition(f'namespace "{command.namespace}" is being deleted')
        stored = await self._store.get(KIND, command.namespace, command.name)
        if not intake.is_repeat(command, stored.uid if stored is not None else None):
            await self._create(await self._accepted(command, mark), mark)

    async def _decided(self, attempt: Callable[[], Awaitable[None]]) -> None:
        """These read the store itself: no view has to catch up before they are decided again."""
        for _ in range(ATTEMPTS - 1):
            with suppress(Raced):
                return await attempt()
        return await attempt()

    async def _accepted(self, command: SubmitWorkload, mark: InboxMark) -> Workload:
        try:
            return intake.submitted(command)
        except InvalidArgument as error:
            refused = WorkloadHeld(
                namespace=command.namespace, name=command.name, uid=command.uid, reason="Invalid", message=str(error),
                owner_kind=command.owner_kind, owner_name=command.owner_name, owner_uid=command.owner_uid,
            )  # fmt: skip
            await commit(self._store, Commit(facts=(refused,), mark=mark))
            raise

    async def _create(self, workload: Workload, mark: InboxMark) -> None:
        body = intake.body_of(workload, current_cause().correlation_id)
        if (await self._store.read_hash(self._cancelled)).get(workload.uid):
            log.info("submission_was_cancelled", workload=workload.name, uid=workload.uid)
            return
        creation = Commit(
            puts=(Put(KIND, workload.namespace, workload.name, body, None),),
            requires=(
                Require.exists("Namespace", "", workload.namespace),
                Require.equals(self._cancelled, workload.uid, None),
            ),
            facts=(facts.queued(body),),
            mark=mark,
        )
        point("scheduler.submit.before-commit")
        await commit(self._store, creation)
        point("scheduler.submit.after-commit")

    async def cancel(self, command: CancelWorkload, mark: InboxMark) -> None:
        """End a workload once; one that is over or was never there is no matter."""
        await self._decided(lambda: self._cancel(command, mark))

    async def _cancel(self, command: CancelWorkload, mark: InboxMark) -> None:
        stored = await self._store.get(KIND, command.namespace, command.name)
        if stored is None or stored.uid != command.uid:
            await self._remember_cancelled(command, stored.uid if stored is not None else None, mark)
            return
        ending = intake.cancelled(command, stored.body, rfc3339(self._clock.now()))
        if ending is None:
            return
        point("scheduler.cancel.before-commit")
        await commit(self._store, ending_commit(stored, ending, mark))
        point("scheduler.cancel.after-commit")

    async def _remember_cancelled(self, command: CancelWorkload, stored_uid: str | None, mark: InboxMark) -> None:
        if (await self._store.read_hash(self._cancelled)).get(command.uid):
            return
        now = str(await self._store.time_us())
        document = keys.doc(KIND, command.namespace, command.name)
        guards = (Require.equals(self._cancelled, command.uid, None), Require.equals(document, "uid", stored_uid))
        await commit(
            self._store,
            Commit(requires=guards, assigns=(Assign(self._cancelled, command.uid, now),), mark=mark, release=True),
        )

    async def forget_cancelled(self, older_us: int) -> None:
        """Drop remembered cancellations from before a time; a submission cannot come that late."""
        for uid, at in (await self._store.read_hash(self._cancelled)).items():
            if int(at) < older_us:
                guard = Require.equals(self._cancelled, uid, at)
                await commit(self._store, Commit(requires=(guard,), assigns=(Assign(self._cancelled, uid, None),)))

    async def clean_up(self, document: Document, around: Surroundings) -> bool:
        """Do what nobody else will do with a workload; whether there was anything."""
        ending = cleanup(document.body, around, self._clock.now())
        if ending is None:
            return False
        await commit(self._store, ending_commit(document, ending, None))
        log.info("workload_cleaned_up", namespace=document.namespace, workload=document.name, reason=ending.reason)
        return True


def ending_commit(document: Document, ending: Ending, mark: InboxMark | None) -> Commit:
    """The document's move and everything it held, given back in one commit: exactly once."""
    key = (KIND, document.namespace, document.name)
    nodes = dict.fromkeys(holding.node for holding in ending.freed)
    steps = [step for holding in ending.freed for step in release(holding)]
    return Commit(
        puts=(Put(*key, ending.body, document.revision),) if ending.body is not None else (),
        deletes=(Delete(*key, document.revision),) if ending.body is None else (),
        counters=[*counters(steps), *(changed(node) for node in nodes)],
        facts=[About(fact, 0) for fact in ending.facts],
        mark=mark,
        release=True,
    )
