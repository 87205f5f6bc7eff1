"""The deployer's timers: everything compared with the store about every minute, and the grace of lost nodes.

Must not hold state that a restart would lose. Read next: handlers.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable
from itertools import count

from prometheus_client import Gauge

from services.deployer.domain import observed
from services.deployer.store.view import View
from shared.resources.core import Pod
from shared.store.client import Store

RESYNC_LEASE = "resync"
PODS = "gpubus_pods"

pods_gauge = Gauge(PODS, "Pods, by what is known of them.", ["state"])

_LOST_SECONDS = 1.0
_RELOAD_SECONDS = 0.02
"""How often it is looked whether the view is of the store's epoch; only while it is not."""
_MEASURE_EVERY = 15


async def keep_in_step(resync: Callable[[], Awaitable[None]], seconds: float, now: asyncio.Event) -> None:
    """Resync again and again, and whenever `now` is set; facts only make it faster."""
    while True:
        now.clear()
        await resync()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds * random.uniform(0.8, 1.2)):  # noqa: S311 - spreads copies
                await now.wait()


async def renew(view: View, store: Store, wake_all: Callable[[], Awaitable[None]], now: asyncio.Event) -> None:
    """A new epoch: once this copy has read what the store still has, agents say again what runs, and all is compared."""
    while view.cache.epoch != store.epoch:  # noqa: ASYNC110 - the view has no event for it, and this is rare
        await asyncio.sleep(_RELOAD_SECONDS)
    await wake_all()
    now.set()


async def watch_losses(view: View, give_up: Callable[[str], Awaitable[None]]) -> None:
    """Act when the grace of a lost node ends, which no message tells; for ever, in every copy."""
    known: frozenset[str] = frozenset()
    for round_ in count():
        given_up = view.given_up()
        for node in given_up - known:
            await give_up(node)
        known = given_up
        if round_ % _MEASURE_EVERY == 0:
            measure(view)
        await asyncio.sleep(_LOST_SECONDS)


def measure(view: View) -> None:
    """Bring the gauges up to date."""
    states = {"ready": 0, "unready": 0, "stopping": 0, "waiting": 0}
    for pod in view.cache.read_all("Pod", Pod):
        states[_state(pod)] += 1
    for state, number in states.items():
        pods_gauge.labels(state).set(number)


def _state(pod: Pod) -> str:
    if pod.deleting:
        return "stopping"
    if not pod.spec.node_name:
        return "waiting"
    return "ready" if observed.ready(pod) else "unready"
