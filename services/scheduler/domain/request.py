"""What one Pod asks for: read from its containers, checked, and reduced to numbers that a node either has or lacks.

Whole cards of one maker per Pod; other forms are recognised and carried as `not_served`, never admitted. Quantities
follow Kubernetes. Pure. Read next: filters.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from services.scheduler.domain.keys import CPU, DEVICE_PREFIX, MEMORY, METERED, UNMETERED, CardKey, Form, card_key
from shared.errors import Cause
from shared.resources.core import Container, PodSpec
from shared.resources.workload import WorkloadSpec
from shared.units import QuantityError, parse_count, parse_milli

Parser = Callable[[str], int]
SIDECAR = "Always"
"""The restart policy of an init container that keeps running beside the others."""
FORBIDDEN, REQUIRED = "FieldValueForbidden", "FieldValueRequired"


@dataclass(frozen=True, slots=True)
class Tolerated:
    """One toleration."""

    key: str
    operator: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True)
class Request:
    """One Pod's demand. Equal requests fit the same nodes: they form one equivalence class."""

    manufacturer: str = ""
    cards: int = 0
    cpu_milli: int = 0
    memory_bytes: int = 0
    selector: tuple[tuple[str, str], ...] = ()
    tolerations: tuple[Tolerated, ...] = ()
    node_name: str = ""
    artifact: str = ""
    """Digest of the weights it needs; a node that has them is preferred."""
    unknown: tuple[str, ...] = ()
    """Resource keys that nothing here offers."""
    not_served: str = ""
    """What of the request exists in the contract and is not admitted yet; empty when all of it is."""
    invalid: str = ""
    """What is wrong with it: only of stored workloads that an older version accepted."""


@dataclass(slots=True)
class _Sums:
    """Totals of one group of containers."""

    cpu_milli: int = 0
    memory_bytes: int = 0
    cards: int = 0

    def plus(self, other: _Sums) -> _Sums:
        return _Sums(self.cpu_milli + other.cpu_milli, self.memory_bytes + other.memory_bytes, self.cards + other.cards)

    def most(self, other: _Sums) -> _Sums:
        return _Sums(
            max(self.cpu_milli, other.cpu_milli),
            max(self.memory_bytes, other.memory_bytes),
            max(self.cards, other.cards),
        )


class _Reader:
    """Collects what a Pod's containers ask for, and everything that is wrong with it."""

    def __init__(self) -> None:
        self.causes: list[Cause] = []
        self.forms: dict[Form, None] = {}
        self.makers: dict[str, None] = {}
        self.unknown: dict[str, None] = {}
        self.devices: dict[str, None] = {}

    def container(self, container: Container, path: str) -> _Sums:
        """One container's numbers."""
        resources = container.resources
        at = f"{path}.resources"
        sums = _Sums(self._metered(parse_milli, container, CPU, at), self._metered(parse_count, container, MEMORY, at))
        for name in dict.fromkeys((*resources.limits, *resources.requests)):
            if name not in METERED:
                sums.cards += self._other(container, name, at)
        return sums

    def _other(self, container: Container, name: str, at: str) -> int:
        if name in UNMETERED:
            return 0
        if "/" not in name:
            self._bad(f"{at}.limits[{name}]", "is no standard resource; extended ones are written vendor/name")
            return 0
        count = self._extended(container, name, at)
        if not count:
            return 0
        key = card_key(name)
        if key is None:
            (self.devices if name.startswith(DEVICE_PREFIX) else self.unknown)[name] = None
            return 0
        self._seen(container, key, f"{at}.limits[{name}]")
        return count if key.form is Form.WHOLE else 0

    def _seen(self, container: Container, key: CardKey, at: str) -> None:
        self.forms[key.form] = None
        self.makers[key.manufacturer] = None
        if container.restart_policy == SIDECAR:
            self._bad(at, "a container that restarts on its own cannot hold a card", FORBIDDEN)

    def _extended(self, container: Container, name: str, at: str) -> int:
        limit, request = container.resources.limits.get(name), container.resources.requests.get(name)
        if limit is None:
            self._bad(f"{at}.limits[{name}]", "a limit must be set; requests alone do not reserve cards", REQUIRED)
            return 0
        count = self._parsed(parse_count, limit, f"{at}.limits[{name}]")
        if request is not None and self._parsed(parse_count, request, f"{at}.requests[{name}]") != count:
            self._bad(f"{at}.requests[{name}]", f"is {request}, must equal the limit {limit}")
        return count

    def _metered(self, parse: Parser, container: Container, name: str, at: str) -> int:
        limit, request = container.resources.limits.get(name), container.resources.requests.get(name)
        most = self._parsed(parse, limit, f"{at}.limits[{name}]") if limit is not None else None
        if request is None:
            return most or 0
        asked = self._parsed(parse, request, f"{at}.requests[{name}]")
        if limit is not None and asked > (most or 0):
            self._bad(f"{at}.requests[{name}]", f"is {request}, must not be over the limit {limit}")
        return asked

    def _parsed(self, parse: Parser, text: str, at: str) -> int:
        try:
            return parse(text)
        except QuantityError as error:
            hint = "; for a part of a card ask for a slice" if "whole number" in str(error) and "/" in at else ""
            self._bad(at, f"{error}{hint}")
            return 0

    def _bad(self, field: str, message: str, reason: str = "FieldValueInvalid") -> None:
        self.causes.append(Cause(field, message, reason))


def read_pod(pod: PodSpec, path: str) -> tuple[Request, list[Cause]]:
    """A Pod's request and everything that is wrong with it; `path` is where the PodSpec stands in its object."""
    reader = _Reader()
    running, sidecars, starting = _Sums(), _Sums(), _Sums()
    for position, container in enumerate(pod.containers):
        running = running.plus(reader.container(container, f"{path}.containers[{position}]"))
    for position, container in enumerate(pod.init_containers):
        own = reader.container(container, f"{path}.initContainers[{position}]")
        if container.restart_policy == SIDECAR:
            sidecars = sidecars.plus(own)
        else:
            starting = starting.most(own.plus(sidecars))
    total = running.plus(sidecars).most(starting)
    reader.causes += _family_causes(reader, running.cards, starting.cards, path)
    request = Request(
        manufacturer=next(iter(reader.makers), "") if total.cards or _partial(reader) else "",
        cards=total.cards,
        cpu_milli=total.cpu_milli,
        memory_bytes=total.memory_bytes,
        selector=tuple(sorted(pod.node_selector.items())),
        tolerations=tuple(Tolerated(t.key, t.operator, t.value, t.effect) for t in pod.tolerations),
        node_name=pod.node_name,
        unknown=tuple(reader.unknown),
        not_served="; ".join(_not_served(reader, pod)),
    )
    return request, reader.causes


def read_workload(spec: WorkloadSpec, path: str = "spec") -> tuple[Request, list[Cause]]:
    """A workload's request: that of its one Pod. More Pods than one are placed together, which is not served yet."""
    causes: list[Cause] = []
    requests: list[Request] = []
    for position, pods in enumerate(spec.pod_sets):
        request, wrong = read_pod(pods.template.spec, f"{path}.podSets[{position}].template.spec")
        requests.append(request)
        causes += wrong
    pods_wanted = sum(pods.count for pods in spec.pod_sets)
    first = requests[0]
    if pods_wanted == 1:
        return first, causes
    together = f"a workload of {pods_wanted} Pods that start together"
    not_served = "; ".join(filter(None, (together, first.not_served)))
    return Request(manufacturer=first.manufacturer, cards=first.cards, not_served=not_served), causes


def _partial(reader: _Reader) -> bool:
    return any(form is not Form.WHOLE for form in reader.forms)


def _family_causes(reader: _Reader, running: int, starting: int, path: str) -> Iterator[Cause]:
    if len(reader.makers) > 1:
        found = " ".join(sorted(reader.makers))
        yield Cause(path, f"cards of one manufacturer and form per Pod, found [{found}]", FORBIDDEN)
    if len(reader.forms) > 1:
        found = " ".join(form.value for form in Form if form in reader.forms)
        yield Cause(path, f"cards of one manufacturer and form per Pod, found [{found}]", FORBIDDEN)
    if running and starting:
        sentence = "cards are claimed by init containers or by the others, not by both; take them out here"
        yield Cause(f"{path}.initContainers", sentence, FORBIDDEN)


def _not_served(reader: _Reader, pod: PodSpec) -> Iterator[str]:
    for form in (Form.SHARED, Form.SLICED, Form.PARTITIONED):
        if form in reader.forms:
            yield f"a {form.value} card"
    yield from reader.devices
    extra = pod.model_extra or {}
    affinity = extra.get("affinity") or {}
    for kind in ("nodeAffinity", "podAffinity", "podAntiAffinity"):
        if isinstance(affinity, dict) and (affinity.get(kind) or {}).get(
            "requiredDuringSchedulingIgnoredDuringExecution"
        ):
            yield f"a required {kind}"
    spread = extra.get("topologySpreadConstraints") or []
    if any(
        isinstance(item, dict) and item.get("whenUnsatisfiable", "DoNotSchedule") == "DoNotSchedule" for item in spread
    ):
        yield "a topology spread constraint"
