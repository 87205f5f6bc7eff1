"""Whatever the order in which copies hear of a node's end of work, its ledger and views settle back to full.

The deployer cancels a workload once it has heard that its Pods are stopped. The scheduler hears the reports on its own
way: late, twice, out of order, at two copies at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from services.scheduler.domain import ledger
from services.scheduler.domain.ledger import Holding
from services.scheduler.domain.nodes import view_of
from services.scheduler.domain.orphans import Owned, holding_of
from services.scheduler.domain.reported import Taken, is_stale, orphans_in, taken
from services.scheduler.domain.scorers import DEFAULT_WEIGHTS, weighted
from services.scheduler.domain.views import allocations, capacity_views
from services.scheduler.projections.nodes import NodeBook
from shared.reports import PodsReported, PodState
from tests.unit.scheduler.builders import A10G, cards_of, facts

CARDS = 4
CARD = 1_600_000
EPOCH = "e1"
NODE = "n1"


@dataclass
class Node:
    """The ledger hash, the documents, and two copies that work on them by compare and swap."""

    hash: dict[str, str] = field(default_factory=dict)
    book: NodeBook = field(default_factory=lambda: NodeBook(weighted(DEFAULT_WEIGHTS)))
    held: dict[tuple[str, str], Holding] = field(default_factory=dict)
    begun: dict[int, tuple[PodsReported, dict[str, str]]] = field(default_factory=dict)
    """Copy to the report it has in hand and the hash it has read."""

    def __post_init__(self) -> None:
        self.book.put(facts(NODE, cards=CARDS))
        self.take(PodsReported(node=NODE, incarnation="i", sequence=1, epoch=EPOCH, pods=[]), dict(self.hash))

    def admit(self, name: str, cards: tuple[str, ...]) -> None:
        holding = Holding(NODE, cards, CARD, 500)
        self.step(*ledger.reserve(holding, cpu_milli=32_000, memory_bytes=0))
        self._hold(name, holding)

    def cancel(self, name: str) -> None:
        """A repeat finds no document and does nothing."""
        holding = self.held.get(("default", name))
        if holding is not None:
            self.step(*ledger.release(holding))
            self._hold(name, None)

    def begin(self, copy: int, report: PodsReported) -> None:
        self.end(copy)
        self.begun[copy] = (report, dict(self.hash))

    def end(self, copy: int) -> None:
        found = self.begun.pop(copy, None)
        if found is not None and not self.take(*found):
            assert self.take(found[0], dict(self.hash)), "nothing came between"

    def take(self, report: PodsReported, read: dict[str, str]) -> bool:
        """Decide on what was read and commit; False when it has changed."""
        if is_stale(report, read):
            return True
        owned = {key: Owned(*key, frozenset(holding.cards)) for key, holding in self.held.items()}
        change = taken(report, read, owned)
        if change.fields and any(self.hash.get(name) != read.get(name) for name in (ledger.REPORTED, ledger.CHANGES)):
            return False
        self._write(change)
        return True

    def _write(self, change: Taken) -> None:
        for name, value in change.fields.items():
            if value is None:
                self.hash.pop(name)
            else:
                self.hash[name] = value
        if change.changes:
            self.step(*change.steps)

    def step(self, *steps: ledger.Step) -> None:
        for step in (*steps, ledger.Step(NODE, ledger.CHANGES, 1)):
            number = int(self.hash.get(step.field, "0")) + step.delta
            assert number >= 0
            assert step.ceiling is None or number <= step.ceiling
            self.hash[step.field] = str(number)

    def mirror(self) -> None:
        """Devices.status is written."""
        self.book.mark(NODE, self.hash.get(ledger.EPOCH, ""), list(orphans_in(self.hash).values()))

    def check(self) -> None:
        """The counters are what documents and orphans hold."""
        held = ledger.Used()
        for holding in (*self.held.values(), *(holding_of(NODE, found) for found in orphans_in(self.hash).values())):
            held.add(holding)
        assert ledger.compare(self.hash, held.amounts()) == []

    def _hold(self, name: str, holding: Holding | None) -> None:
        key = ("default", name)
        self.book.hold(key, (holding,) if holding is not None else ())
        self.held.pop(key, None)
        if holding is not None:
            self.held[key] = holding


def a_report(sequence: int, phases: dict[str, str]) -> PodsReported:
    pods = [
        PodState(
            uid=f"pod-{name}", namespace="default", name=name, workload=name, devices=[card_of(name)], credits=CARD,
            cpu_milli=500, phase=phase,
        )
        for name, phase in phases.items()
    ]  # fmt: skip
    return PodsReported(node=NODE, incarnation="i", sequence=sequence, epoch=EPOCH, pods=pods)


def card_of(name: str) -> str:
    return cards_of(NODE, CARDS)[int(name[1:])]


@st.composite
def ends(draw: st.DrawFn) -> tuple[list[str], list[PodsReported], list[tuple]]:
    """Workloads, the reports of their node from running to stopped, and the order in which everything arrives."""
    names = [f"w{index}" for index in range(draw(st.integers(1, CARDS)))]
    phases = dict.fromkeys(names, "Pending")
    reports = [a_report(2, phases)]
    for name in draw(st.permutations([*names, *names])):
        phases[name] = {"Pending": "Running", "Running": "Stopped", "Stopped": "Stopped"}[phases[name]]
        reports.append(a_report(len(reports) + 2, dict(phases)))
    if draw(st.booleans()):
        reports.append(a_report(len(reports) + 2, {}))
    again = draw(st.lists(st.sampled_from(range(len(reports))), max_size=4))
    arrivals = [("report", which, draw(st.integers(0, 1))) for which in [*range(len(reports)), *again]]
    steps = [
        *arrivals,
        *(("cancel", name) for name in [*names, *names]),
        ("mirror",),
        ("mirror",),
        ("end", 0),
        ("end", 1),
    ]
    return names, reports, draw(st.permutations(steps))


@settings(max_examples=400, deadline=None)
@given(ends())
def test_ledger_and_views_settle_back_to_full_in_any_order(story):
    names, reports, steps = story
    node = Node()
    for name in names:
        node.admit(name, (card_of(name),))

    for step in steps:
        match step:
            case "report", which, copy:
                node.begin(copy, reports[which])
            case "cancel", name:
                node.cancel(name)
            case ("mirror",):
                node.mirror()
            case "end", copy:
                node.end(copy)
        node.check()
    node.end(0)
    node.end(1)
    node.mirror()

    assert orphans_in(node.hash) == {}
    assert ledger.compare(node.hash, {}) == []
    node.book.refresh(EPOCH)
    view = view_of(node.book.facts[NODE], node.book.used(NODE), confirmed=True, artifacts=frozenset())
    views = capacity_views(A10G, [view])
    assert (views["accelerator"].remaining, views["accelerator"].capacity) == (CARDS, CARDS)
    assert (views["cpu"].remaining, views["cpu"].capacity) == (32, 32)
    group = {"id": "a10g", "manufacturer": "nvidia", "accelerators": [{"id": card} for card in cards_of(NODE, CARDS)]}
    shown = allocations([group], node.book.used(NODE).cards, node.book.holders(NODE))[0]["accelerators"]
    assert all(card["mode"] == "None" and not card["holders"] for card in shown)


def test_report_of_a_moment_before_the_one_taken_charges_nobody():
    node = Node()
    node.admit("w0", (card_of("w0"),))
    node.begin(0, a_report(3, {"w0": "Stopped"}))
    node.end(0)
    node.cancel("w0")

    node.begin(1, a_report(2, {"w0": "Running"}))
    node.end(1)

    assert orphans_in(node.hash) == {}
    assert ledger.compare(node.hash, {}) == []


def test_numbers_of_reports_begin_anew_with_the_epoch():
    stored = {ledger.EPOCH: "e0", ledger.REPORTED: "9"}

    assert not is_stale(a_report(2, {}), stored)
    assert is_stale(a_report(2, {}), {**stored, ledger.EPOCH: EPOCH})
    assert not is_stale(a_report(9, {}), {**stored, ledger.EPOCH: EPOCH})
