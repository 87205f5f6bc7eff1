"""The controller put together: the only file that constructs its clients.

Read next: handlers.py, loops/cycle.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

from services.scheduler.domain.admission import Limits
from services.scheduler.domain.pools import PoolKey
from services.scheduler.domain.rules import RULES
from services.scheduler.domain.scorers import DEFAULT_WEIGHTS, Weights, weighted
from services.scheduler.handlers import Handlers
from services.scheduler.loops.cycle import AdmissionLoop
from services.scheduler.loops.keeper import PoolKeeper
from services.scheduler.loops.steward import LEASE, Steward
from services.scheduler.projections.board import KINDS, Board
from services.scheduler.settings import SchedulerSettings
from services.scheduler.store.ledgers import LedgerStore
from services.scheduler.store.pools import PoolStore
from services.scheduler.store.workloads import WorkloadStore
from shared.bus.router import Router
from shared.clock import Clock
from shared.service import Plan, Runtime
from shared.service import main as run_main
from shared.store.cache import DocumentCache
from shared.store.client import Store
from shared.store.leases import run_leased
from shared.store.objects import ObjectWriter

SERVICE = "scheduler"


@dataclass(frozen=True, slots=True)
class _Parts:
    """What handlers and loops share."""

    store: Store
    board: Board
    pools: PoolStore
    ledgers: LedgerStore
    workloads: WorkloadStore
    clock: Clock


async def build(runtime: Runtime[SchedulerSettings]) -> Plan:
    """Connect and wire."""
    clock, settings = runtime.clock, runtime.settings
    store = await runtime.connect_store()
    bus = await runtime.connect_bus()
    cache = DocumentCache(store, KINDS)
    board = Board(cache, _weights(settings.placement))
    ledgers = LedgerStore(store, board)
    parts = _Parts(store, board, PoolStore(store, board, clock), ledgers, WorkloadStore(store, clock), clock)
    writer = ObjectWriter(store, RULES, clock)
    handlers = Handlers(board=board, pools=parts.pools, workloads=parts.workloads, ledgers=parts.ledgers, writer=writer)
    keeper, steward = _keeper(parts, settings), _steward(parts, handlers, settings)
    router = Router(SERVICE)
    router.include(handlers)
    return Plan(
        name=SERVICE,
        bus=bus,
        store=store,
        router=router,
        loops={
            "cache": cache.run,
            "pools": keeper.run,
            "steward": lambda: run_leased(store, LEASE, steward.run, clock),
        },
        before=(cache.synced,),
        checks={"cache": lambda: cache.ready},
    )


def _keeper(parts: _Parts, settings: SchedulerSettings) -> PoolKeeper:
    """The pools this copy admits to; the board wakes them."""
    limits = Limits(admissions=settings.cycle_admissions, patience=settings.patience_seconds)
    admission = AdmissionLoop(
        store=parts.store, board=parts.board, ledgers=parts.ledgers, clock=parts.clock, limits=limits,
        batch=settings.batch,
    )  # fmt: skip
    keeper = PoolKeeper(parts.store, parts.board, admission.run)

    def wake(pool: PoolKey) -> None:
        admission.wake(pool)
        keeper.notice(pool)

    parts.board.on_pool = wake
    return keeper


def _steward(parts: _Parts, handlers: Handlers, settings: SchedulerSettings) -> Steward:
    """What one copy does for all."""
    return Steward(
        store=parts.store,
        board=parts.board,
        pools=parts.pools,
        ledgers=parts.ledgers,
        workloads=parts.workloads,
        clean_up=handlers.clean_up,
        clock=parts.clock,
        audit_seconds=settings.audit_seconds,
    )


def main() -> NoReturn:
    """Run the controller."""
    run_main(SERVICE, SchedulerSettings, build)


def _weights(placement: str) -> Weights:
    """The default weights with packing or its opposite."""
    chosen = {**DEFAULT_WEIGHTS}
    chosen[placement] = chosen.pop("binpack")
    return weighted(chosen)
