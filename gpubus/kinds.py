"""Which kinds the gateway serves and how they are called: plural, singular, short name, kind, category.

Asked of the API itself, so that an older command knows a newer server's kinds. Must not import shared/resources.
Read next: gpubus/resources.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from gpubus.refusal import Refusal
from gpubus.rest import Api

_AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"


@dataclass(frozen=True, slots=True)
class ServedKind:
    """One resource of the API."""

    group: str
    version: str
    plural: str
    kind: str
    singular: str
    namespaced: bool
    short: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()

    @property
    def api_version(self) -> str:
        """As in a manifest."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def label(self) -> str:
        """`modeldeployment.worker.gpustack.ai`, as kubectl names things."""
        return f"{self.singular or self.kind.lower()}{'.' if self.group else ''}{self.group}"

    def path(self, namespace: str, name: str = "", sub: str = "") -> str:
        """The URL path of the collection (of all namespaces when `namespace` is empty) or of one object."""
        parts = ["/apis" if self.group else "/api", *([self.group] if self.group else []), self.version]
        if self.namespaced and namespace:
            parts += ["namespaces", quote(namespace, safe="")]
        parts += [self.plural, *([quote(name, safe="")] if name else []), *([sub] if sub else [])]
        return "/".join(parts)


def served(api: Api) -> list[ServedKind]:
    """Every kind."""
    found: list[ServedKind] = []
    for root in ("/api", "/apis"):
        _, answer = api.call("GET", root, accept=_AGGREGATED)
        for group in answer.get("items", ()) if isinstance(answer, dict) else ():
            found += _group(group)
    return found


def _group(group: dict[str, Any]) -> Iterator[ServedKind]:
    name = str(group.get("metadata", {}).get("name", ""))
    for version in group.get("versions", ()):
        for entry in version.get("resources", ()):
            yield ServedKind(
                group=name, version=str(version.get("version", "")), plural=str(entry.get("resource", "")),
                kind=str(entry.get("responseKind", {}).get("kind", "")), singular=str(entry.get("singularResource", "")),
                namespaced=entry.get("scope") == "Namespaced", short=tuple(entry.get("shortNames", ())),
                categories=tuple(entry.get("categories", ())),
            )  # fmt: skip


def named(kinds: list[ServedKind], word: str) -> list[ServedKind]:
    """What a user means by `md`, `pods`, `Workload`, `workloads.kueue.x-k8s.io`, `all`.

    Raises:
        Refusal: nothing is called so.
    """
    plain, _, group = word.lower().partition(".")
    found = [
        kind for kind in kinds
        if plain in {kind.plural, kind.singular, kind.kind.lower(), *kind.short} and kind.group.startswith(group)
    ]  # fmt: skip
    found = found[:1] or [kind for kind in kinds if plain in kind.categories]
    if not found:
        known = ", ".join(sorted({kind.plural for kind in kinds}))
        raise Refusal(f"There is no kind {word!r}; there are {known}.")
    return found


def of_document(kinds: list[ServedKind], body: dict[str, Any]) -> ServedKind:
    """The kind of a manifest.

    Raises:
        Refusal: it is not served.
    """
    api_version, kind = str(body.get("apiVersion", "")), str(body.get("kind", ""))
    for entry in kinds:
        if (entry.api_version, entry.kind) == (api_version, kind):
            return entry
    near = [entry for entry in kinds if entry.kind.lower() == kind.lower()]
    way_out = f"; did you mean {near[0].api_version} {near[0].kind}?" if near else ""
    raise Refusal(f"no kind {kind or '(none)'} in {api_version or '(no apiVersion)'} is served{way_out}")
