"""What a ModelDeployment may be and how it may change. Every refusal names the field and the way out.

Pure. Facts: the reference operator's sections 2.11, 7.3 and 7.11. Read next: rules_role.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from services.deployer.domain.engines import registry
from services.deployer.domain.names import LABEL_LIMIT, MEMBER_SUFFIX, role_name
from services.deployer.domain.rules_pod import finalizer_causes
from services.deployer.domain.rules_role import FORBIDDEN, REQUIRED, role_causes
from services.deployer.domain.weights import gguf_problem
from shared.errors import Cause
from shared.events.deployment import DeploymentApplied, DeploymentRemoved
from shared.events.objects import DeployerObjectRemoved
from shared.messages.base import Fact
from shared.resources.artifact import ModelArtifact
from shared.resources.base import read_tolerant
from shared.resources.deployment import ModelDeployment, ModelDeploymentSpec, Role
from shared.resources.pool import InstanceType
from shared.store.names import NameFormat
from shared.store.rules import Key, Lookup, WriteRules

FINALIZER = "gpubus.io/replicas-stopped"
"""Held until every replica is confirmed stopped and its Workload taken back."""

NAME = NameFormat(
    re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?", re.ASCII),
    LABEL_LIMIT,
    "must start with a letter, end with a letter or digit, and have only lower case letters, digits and '-' between"
    " (RFC 1035 label: replicas and services are named after it)",
)

Manifests = Callable[[str], Sequence[str] | None]
"""Manifest digest -> paths of its files, if it has been read."""

_ROUTERS = {"llm-d-router": ("vLLM", "SGLang"), "vllm-router": ("vLLM",), "sglang-gateway": ("SGLang",)}


def rules(manifests: Manifests) -> WriteRules:
    """The rules; `manifests` tells what was read of resolved artifacts."""

    def validate(new: ModelDeployment, old: ModelDeployment | None, lookup: Lookup) -> list[Cause]:
        causes = list(finalizer_causes(new, old, FINALIZER)) if old is not None else []
        if old is not None and (old.deleting or old.spec == new.spec):
            return causes
        causes += [*_shape(new.spec), *_names(new)]
        causes += _roles(new.spec, old, lookup)
        causes += _weights(new, lookup, manifests) if old is None else _frozen(new.spec, old.spec)
        return causes

    return WriteRules(
        kind="ModelDeployment", default=default, validate=validate, facts=facts, needs=needs,
        finalizers=(FINALIZER,), names=NAME,
    )  # fmt: skip


def default(deployment: ModelDeployment) -> ModelDeployment:
    """As sent: defaults that depend on the pool are taken when a replica is rendered, so that they follow the pool."""
    return deployment


def needs(new: ModelDeployment) -> list[Key]:
    """The pools and the artifact that it names."""
    keys = [("InstanceType", "", name) for name in sorted({role.instance_type for role in new.spec.roles})]
    ref = new.spec.model.artifact_ref
    return [*keys, ("ModelArtifact", new.namespace, ref.name)] if ref else keys


def facts(old: ModelDeployment | None, new: ModelDeployment | None) -> tuple[Fact, ...]:
    """Applied when the spec is new or another; removed when it is gone, and a wake-up when that was asked for."""
    shown = new or old
    assert shown is not None, "a write has an object before or after"
    named = {"namespace": shown.namespace, "name": shown.name, "uid": shown.uid}
    if new is None:
        return (DeploymentRemoved(**named, model=shown.spec.model.name),)
    if new.deleting and not (old and old.deleting):
        return (DeployerObjectRemoved(kind="ModelDeployment", **named, generation=new.metadata.generation),)
    if old is not None and old.spec == new.spec:
        return ()
    return (DeploymentApplied(**named, model=new.spec.model.name, generation=new.metadata.generation),)


def _shape(spec: ModelDeploymentSpec) -> Iterator[Cause]:
    kinds = [role.kind for role in spec.roles]
    seen: dict[str, int] = {}
    for position, role in enumerate(spec.roles):
        at = f"spec.roles[{position}]"
        if role.name in seen:
            yield Cause(
                f"{at}.name", f"{role.name!r} is also the name of spec.roles[{seen[role.name]}]", "FieldValueDuplicate"
            )
        seen.setdefault(role.name, position)
        if role.kind == "Server" and set(kinds) != {"Server"}:
            yield Cause(f"{at}.kind", "a Server role cannot stand beside Prefill and Decode roles", FORBIDDEN)
        if role.kind != "Server" and kinds.index(role.kind) != position:
            yield Cause(
                f"{at}.kind", f"only Server roles may repeat; {role.kind} is already roles[{kinds.index(role.kind)}]"
            )
        if role.kind != "Server" and spec.engine.name in {"LlamaCpp", "Custom"}:
            yield Cause(f"{at}.kind", f"{spec.engine.name} has no separate prefill and decode", FORBIDDEN)
    yield from _router(spec)
    if spec.engine.name == "LlamaCpp" and spec.model.artifact_ref is None and not all(r.command for r in spec.roles):
        sentence = "LlamaCpp loads a GGUF file: name the ModelArtifact that has it"
        yield Cause("spec.model.artifactRef", sentence, REQUIRED)


def _router(spec: ModelDeploymentSpec) -> Iterator[Cause]:
    router = spec.router
    if router is None:
        return
    engines = _ROUTERS.get(router.name)
    if engines is None:
        yield Cause(
            "spec.router.name", f"{router.name!r} is not one of {', '.join(_ROUTERS)}", "FieldValueNotSupported"
        )
    elif spec.engine.name not in {*engines, "Simulated"}:
        yield Cause("spec.router.name", f"{router.name} routes {' and '.join(engines)}, not {spec.engine.name}")
    if router.disaggregation_threshold_tokens is not None and router.name != "llm-d-router":
        yield Cause("spec.router.disaggregationThresholdTokens", "only llm-d-router has it", FORBIDDEN)


def _names(new: ModelDeployment) -> Iterator[Cause]:
    """Derived names are checked now, so that nothing is stored that cannot be named later."""
    several = {role.name for role in new.spec.roles if role.size > 1}
    for position, role in enumerate(new.spec.roles):
        at = f"spec.roles[{position}].name"
        derived = role_name(new.name, role.name)
        if len(derived) > LABEL_LIMIT:
            yield Cause(
                at,
                f"{derived!r} has {len(derived)} characters, {LABEL_LIMIT} are allowed: shorten one of the two names",
            )
        elif role.size > 1 and len(derived) + _members(role.replicas, role.size) > LABEL_LIMIT:
            longest = f"{derived}-r{max(0, role.replicas - 1)}-m{role.size - 1}"
            yield Cause(
                at,
                f"its member {longest!r} has {len(longest)} characters, {LABEL_LIMIT} are allowed: shorten one of the names",
            )
        base, mark, ordinal = role.name.rpartition("-r")
        if mark and ordinal.isdigit() and base in several:
            yield Cause(at, f"{role.name!r} is what replica {ordinal} of role {base!r} is called; rename one of them")


def _members(replicas: int, size: int) -> int:
    return max(MEMBER_SUFFIX, len(f"-r{max(0, replicas - 1)}-m{size - 1}"))


def _roles(spec: ModelDeploymentSpec, old: ModelDeployment | None, lookup: Lookup) -> Iterator[Cause]:
    """Rules of newer versions do not hold back an edit that leaves the role as it is."""
    engine = registry()[spec.engine.name]
    before = {role.name: role for role in old.spec.roles} if old is not None else {}
    for position, role in enumerate(spec.roles):
        known = before.get(role.name)
        if known is not None and known.model_copy(update={"replicas": role.replicas}) == role:
            continue
        body = lookup("InstanceType", "", role.instance_type)
        pool = read_tolerant(InstanceType, body) if body is not None else None
        yield from role_causes(spec, position, engine, pool)


def _weights(new: ModelDeployment, lookup: Lookup, manifests: Manifests) -> Iterator[Cause]:
    ref, engine = new.spec.model.artifact_ref, registry()[new.spec.engine.name]
    if ref is None or not engine.one_gguf or all(role.command for role in new.spec.roles):
        return
    body = lookup("ModelArtifact", new.namespace, ref.name)
    resolved = read_tolerant(ModelArtifact, body).status.resolved if body is not None else None
    paths = manifests(resolved.manifest_digest) if resolved is not None else None
    if paths is not None and (problem := gguf_problem(paths)):
        yield Cause("spec.model.artifactRef", problem)


def _frozen(new: ModelDeploymentSpec, old: ModelDeploymentSpec) -> Iterator[Cause]:
    pairs = (
        ("spec.model", new.model, old.model),
        ("spec.engine.name", new.engine.name, old.engine.name),
        ("spec.kvCache", new.kv_cache, old.kv_cache),
    )
    yield from (_fixed(field) for field, after, before in pairs if after != before)
    if new.router and old.router and new.router.name != old.router.name:
        yield _fixed("spec.router.name")
    known = {role.name: role for role in old.roles}
    if set(known) != {role.name for role in new.roles}:
        sentence = f"the roles are {_listed(known)} and stay so; create another deployment"
        yield Cause("spec.roles", sentence, FORBIDDEN)
    for position, role in enumerate(new.roles):
        if role.name in known:
            yield from _frozen_role(role, known[role.name], f"spec.roles[{position}]")


def _frozen_role(new: Role, old: Role, at: str) -> Iterator[Cause]:
    for field in ("kind", "size"):
        if getattr(new, field) != getattr(old, field):
            yield _fixed(f"{at}.{field}")
    if bool(new.command) != bool(old.command):
        sentence = "a command cannot be added or taken away later (a patch that sends roles must send it whole)"
        yield Cause(f"{at}.command", sentence, FORBIDDEN)


def _fixed(field: str) -> Cause:
    return Cause(field, "cannot be changed; create another deployment", FORBIDDEN)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))
