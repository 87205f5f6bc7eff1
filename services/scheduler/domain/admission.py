"""One admission cycle, pure: given a pool, its queue and the time, who is admitted where, and what the others are told.

The rule of the queue is in queue.py. The cycle: walk through everybody in order; admit whoever fits on the nodes as
they are after the admissions before; pass over a whole class at its first refusal; keep one node for the first that has
waited too long; tell whoever does not know yet why it waits. Read next: queue.py, snapshot.py, diagnosis.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice

from services.scheduler.domain.diagnosis import Verdict, diagnose
from services.scheduler.domain.filters import AVAILABLE, MATCHING, SIZE, refusal
from services.scheduler.domain.nodes import NodeView
from services.scheduler.domain.queue import Demand, Queue, Waiting, WaitingClass
from services.scheduler.domain.request import Request
from services.scheduler.domain.snapshot import PoolView, Trial
from shared.messages.base import Decision
from shared.resources.device import CREDITS_PER_CARD
from shared.resources.workload import Assignment, WorkloadReason

_DIAGNOSED = frozenset(
    {
        WorkloadReason.NO_CAPACITY, WorkloadReason.NODES_UNCONFIRMED,
        WorkloadReason.NEVER_FITS, WorkloadReason.NO_NODE_MATCHES,
    }
)  # fmt: skip
"""Reasons that come from looking at every node."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one cycle does, and how patient the queue is."""

    admissions: int = 200
    holds: int = 150
    patience: float = 300.0
    """Seconds after which one node is kept for the longest waiting workload; 0 never does."""
    diagnose: float = 1.0
    """Seconds for which a diagnosis of one class is used again; a changed reason shows after that at the latest."""
    refresh: float = 10.0
    """Seconds after which a changed sentence (not a changed reason) is told to the first ones of a class."""
    refreshed: int = 100
    """How many of a class that is."""


@dataclass(frozen=True, slots=True)
class TypeState:
    """What of an InstanceType matters here."""

    inactive: bool = False
    deleting: bool = False


@dataclass(frozen=True, slots=True)
class Told:
    """What a class that waits was found and told, and when (in the time of `now`)."""

    verdict: Verdict
    diagnosed: float
    refreshed: float


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything one cycle looks at."""

    pool: PoolView
    queue: Queue
    types: Mapping[str, TypeState] = field(default_factory=dict)
    """InstanceTypes that name the pool."""
    told: Mapping[Demand, Told] = field(default_factory=dict)
    """What the cycle before said of each class."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """A workload and its place."""

    waiting: Waiting
    assignment: Assignment
    node: NodeView
    """As it was before."""


@dataclass(frozen=True, slots=True)
class Held:
    """A workload that is to be told why it waits."""

    waiting: Waiting
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Cycle:
    """What one cycle decided."""

    admissions: tuple[Admitted, ...] = ()
    holds: tuple[Held, ...] = ()
    told: Mapping[Demand, Told] = field(default_factory=dict)
    """Of every class that was passed over; the next cycle's Snapshot carries it."""
    more: bool = False
    """A limit was reached: run again at once."""


def decide_cycle(snapshot: Snapshot, now: float, limits: Limits) -> Decision[Cycle]:
    """Decide for everybody who waits. `now` is seconds of Redis time, like `Waiting.since`."""
    walk = _Walk(snapshot, now, limits)
    heads = snapshot.queue.heads()
    for waiting in heads:
        if len(walk.admissions) >= limits.admissions:
            walk.more = True
            break
        verdict = walk.admit(waiting)
        if verdict is not None:
            walk.pass_over(waiting.demand, verdict)
            heads.skip_class()
    cycle = Cycle(tuple(walk.admissions), tuple(walk.holds), walk.told, walk.more)
    reason = f"admitted {len(cycle.admissions)}, passed over {len(cycle.told)} demands"
    return Decision(reason=reason, state=cycle, requeue_after=walk.requeue_after)


class _Walk:
    """The state of one cycle."""

    def __init__(self, snapshot: Snapshot, now: float, limits: Limits) -> None:
        self.snapshot = snapshot
        self.now = now
        self.limits = limits
        self.trial = Trial(snapshot.pool)
        self.admissions: list[Admitted] = []
        self.holds: list[Held] = []
        self.told: dict[Demand, Told] = {}
        self.more = False
        self.requeue_after: float | None = None
        self._kept_for: Waiting | None = None
        self._diagnosed: dict[Demand, float] = {}
        self._admitted: set[str] = set()

    def admit(self, waiting: Waiting) -> Verdict | None:
        """Reserve the best node for a workload; why not when there is none."""
        demand = waiting.demand
        closed = closed_to(demand, self.snapshot.types)
        if closed is not None:
            return closed
        node = None if is_foreign(demand.request, self.snapshot.pool) else self.trial.best(demand.request)
        if node is None:
            return self._refused(waiting)
        cards = self.trial.reserve(node, demand.request)
        self._admitted.add(waiting.uid)
        self.admissions.append(Admitted(waiting, assignment(demand.request, self.snapshot.pool, node, cards), node))
        return None

    def pass_over(self, demand: Demand, verdict: Verdict) -> None:
        """Leave a class out, and tell its members what they do not know yet."""
        members = self.snapshot.queue.classes[demand]
        before = self.snapshot.told.get(demand)
        refreshed = before.refreshed if before is not None else self.now
        if members.reasons[verdict.reason] < len(members):
            self._tell((waiting for waiting in members if waiting.reason != verdict.reason), verdict)
        else:
            refreshed = self._refresh(members, verdict, refreshed)
        self.told[demand] = Told(verdict, self._diagnosed.get(demand, self.now), refreshed)

    def _refresh(self, members: WaitingClass, verdict: Verdict, refreshed: float) -> float:
        """Tell the first ones a changed sentence, seldom; when that was."""
        outdated = [waiting for waiting in islice(members, self.limits.refreshed) if waiting.message != verdict.message]
        if not outdated:
            return refreshed
        left = refreshed + self.limits.refresh - self.now
        if left > 0:
            self._again_in(left)
            return refreshed
        self._tell(outdated, verdict)
        return self.now

    def _tell(self, members: Iterable[Waiting], verdict: Verdict) -> None:
        for waiting in members:
            if waiting.uid in self._admitted:
                continue
            if len(self.holds) >= self.limits.holds:
                self.more = True
                return
            self.holds.append(Held(waiting, verdict))

    def _again_in(self, seconds: float) -> None:
        self.requeue_after = seconds if self.requeue_after is None else min(seconds, self.requeue_after)

    def _refused(self, waiting: Waiting) -> Verdict:
        if self._kept_for is not None and self._fits_but_for_kept(waiting.demand.request):
            ahead = self._kept_for
            sentence = f"node {self.trial.kept} is kept for {ahead.namespace}/{ahead.name}, which waits longer"
            return Verdict(WorkloadReason.BEHIND_HIGHER_PRIORITY, sentence)
        verdict = self._diagnosis(waiting.demand)
        if not verdict.hopeless and self._kept_for is None:
            self._keep_if_starving(waiting)
        return verdict

    def _diagnosis(self, demand: Demand) -> Verdict:
        before = self.snapshot.told.get(demand)
        if before is not None and before.verdict.reason in _DIAGNOSED:
            left = before.diagnosed + self.limits.diagnose - self.now
            if left > 0:
                self._again_in(left)
                self._diagnosed[demand] = before.diagnosed
                return before.verdict
        pool = self.snapshot.pool
        return diagnose(demand.request, self.trial.nodes.values(), pool.ground, pool.key.name)

    def _fits_but_for_kept(self, request: Request) -> bool:
        node = self.trial.node(self.trial.kept)
        return node is not None and refusal(request, node, self.snapshot.pool.ground) is None

    def _keep_if_starving(self, waiting: Waiting) -> None:
        patience = self.limits.patience
        if not patience:
            return
        left = waiting.since + patience - self.now
        if left > 0:
            self._again_in(left)
            return
        nearest = _nearest(waiting.demand.request, self.trial, self.snapshot.pool)
        if nearest is not None:
            self.trial.kept, self._kept_for = nearest, waiting


def closed_to(demand: Demand, types: Mapping[str, TypeState]) -> Verdict | None:
    """Why a demand is not even tried: no queue, not served yet, switched off; None when it is."""
    state = types.get(demand.queue)
    if not demand.queue or state is None:
        sentence = f'queue "{demand.entrance}" does not exist in this namespace; the ENTRANCE of an InstanceType is one'
        return Verdict(WorkloadReason.QUEUE_NOT_FOUND, sentence)
    if demand.request.invalid:
        return Verdict(WorkloadReason.NEVER_FITS, f"its request is not valid: {demand.request.invalid}")
    if demand.request.not_served:
        return Verdict(WorkloadReason.NOT_SERVED_YET, f"asks for {demand.request.not_served}, which is not served yet")
    if demand.inactive:
        return Verdict(WorkloadReason.DEACTIVATED, "spec.active is false; set it to true to queue it")
    if state.deleting:
        return Verdict(WorkloadReason.POOL_INACTIVE, f"instance type {demand.queue} is being deleted")
    if state.inactive:
        sentence = f"instance type {demand.queue} is on hold (spec.inactive); nothing new is admitted"
        return Verdict(WorkloadReason.POOL_INACTIVE, sentence)
    return None


def is_foreign(request: Request, pool: PoolView) -> bool:
    """Nodes of this pool cannot have what it asks for, whatever their numbers say."""
    accelerator = pool.key.accelerator
    return bool(request.unknown) or (request.cards > 0 and not accelerator.startswith(f"{request.manufacturer}-"))


def assignment(request: Request, pool: PoolView, node: NodeView, cards: tuple[str, ...]) -> Assignment:
    """Exactly what a workload gets."""
    return Assignment(
        node_name=node.name,
        pool=pool.key.name,
        devices=list(cards),
        credits=CREDITS_PER_CARD if cards else 0,
        cpu_milli=request.cpu_milli,
        memory_bytes=request.memory_bytes,
    )


def _nearest(request: Request, trial: Trial, pool: PoolView) -> str | None:
    """The node that lacks least among those that could hold it; equal ones by name."""
    could = (
        node
        for node in trial.nodes.values()
        if refusal(request, node, pool.ground, (*MATCHING, *SIZE, *AVAILABLE)) is None
    )
    lacking = (
        (
            max(request.cards - len(node.free_cards(pool.key.accelerator)), 0),
            max(request.cpu_milli - node.cpu_milli, 0),
            max(request.memory_bytes - node.memory_bytes, 0),
            node.name,
        )
        for node in could
    )
    return min(lacking, default=(0, 0, 0, None))[3]
