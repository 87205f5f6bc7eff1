"""Why a workload is where it is, or why it waits, node by node; the same filters and words as admission.

Pure. Read next: diagnosis.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from services.scheduler.domain import status
from services.scheduler.domain.admission import Snapshot, closed_to, is_foreign
from services.scheduler.domain.diagnosis import Verdict, diagnose
from services.scheduler.domain.filters import refusal
from services.scheduler.domain.queue import Demand
from services.scheduler.domain.snapshot import PoolView

_NODES_SHOWN = 1000


def why_here(body: Mapping[str, Any]) -> dict[str, Any]:
    """State, reason and message that a stored workload's conditions say."""
    found = status.status_of(body).get("conditions") or ()
    last: Mapping[str, Any] = max(found, key=lambda condition: _RANK.get(condition.get("type", ""), -1), default={})
    return {
        "state": status.state(body).value,
        "reason": str(last.get("reason", "")),
        "message": str(last.get("message", "")),
    }


def what_if(snapshot: Snapshot, demand: Demand) -> Verdict | None:
    """Why a demand would wait if it came now and nobody was ahead of it; None when it would be admitted."""
    closed = closed_to(demand, snapshot.types)
    if closed is not None:
        return closed
    pool = snapshot.pool
    if not is_foreign(demand.request, pool) and pool.ranking(demand.request).order:
        return None
    return diagnose(demand.request, pool.nodes.values(), pool.ground, pool.key.name)


def node_by_node(pool: PoolView, demand: Demand, chosen: frozenset[str] = frozenset()) -> list[dict[str, Any]]:
    """Every node of the pool: whether it fits, why not, how good it would be; best first, then by name."""
    rows = []
    for name in sorted(pool.nodes):
        node = pool.nodes[name]
        said = refusal(demand.request, node, pool.ground)
        fits = said is None and not is_foreign(demand.request, pool)
        row: dict[str, Any] = {"node": name, "fits": fits, "reason": "" if said is None else said.text}
        if fits:
            row["score"] = round(pool.score(demand.request, node), 4)
        if name in chosen:
            row["chosen"] = True
        rows.append(row)
    rows.sort(key=lambda row: (not row.get("chosen"), not row["fits"], -row.get("score", 0.0)))
    return rows[:_NODES_SHOWN]


_RANK = {"QuotaReserved": 0, "Admitted": 1, "Evicted": 2, "Finished": 3}


def places(body: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Where its Pods are, as JSON."""
    return status.assignments(body)
