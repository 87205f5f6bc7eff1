"""What one role may ask for and say: resources against its pool, arguments and variables against its engine.

Pure. Facts: the reference operator's sections 3.9, 7.3 and 7.11. Read next: arguments.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from services.deployer.domain.accelerators import cards
from services.deployer.domain.arguments import DATA, PIPELINE, TENSOR, Given, degree, flag_of, owned_by, uses
from services.deployer.domain.engines import RESERVED_ENV, WEIGHT_ENV, WEIGHT_FLAGS, Engine
from shared.errors import Cause
from shared.resources.deployment import ModelDeploymentSpec, Role
from shared.resources.pool import InstanceType

FORBIDDEN, REQUIRED = "FieldValueForbidden", "FieldValueRequired"
DEFAULT_PORT = 8000
_LABEL_KEY = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?", re.ASCII)
_TAKE_OVER = "if the engine must be told otherwise, give its whole command line in roles[].command"
_PARALLEL_ENGINES = ("vLLM", "SGLang")


def role_causes(spec: ModelDeploymentSpec, position: int, engine: Engine, pool: InstanceType | None) -> Iterator[Cause]:
    """Everything wrong with one role; rules that need its pool are left out while there is none."""
    role, at = spec.roles[position], f"spec.roles[{position}]"
    if engine.argv is None and not role.command:
        yield Cause(f"{at}.command", f"engine {engine.name} runs your own command: give it here", REQUIRED)
    yield from _environment(spec, role, engine, at)
    if not role.command:
        yield from _owned(spec, role, engine, at)
    yield from _ports(role, at)
    yield from _topology(role, at)
    yield from _resources(spec, position, pool, at)
    if engine.name in _PARALLEL_ENGINES:
        yield from _width(role, pool, at)


def _owned(spec: ModelDeploymentSpec, role: Role, engine: Engine, at: str) -> Iterator[Cause]:
    owned = engine.owned_flags | (WEIGHT_FLAGS if spec.model.artifact_ref else frozenset())
    for position, argument in enumerate(role.extra_args):
        found = owned_by(flag_of(argument), owned)
        if not found or (found == "--port" and _is_own_port(spec, role, position)):
            continue
        why = "keys are managed by the platform" if found == "--api-key" else "the platform sets it"
        yield Cause(f"{at}.extraArgs[{position}]", f"{found}: {why}; {_TAKE_OVER}", FORBIDDEN)
    if engine.name_flag and engine.name_flag not in engine.owned_flags:
        for given in uses(role.extra_args, (engine.name_flag,)):
            if given.value != spec.model.name:
                sentence = f"{engine.name_flag} is {given.value!r}, spec.model.name is {spec.model.name!r}: they must agree; {_TAKE_OVER}"
                yield Cause(f"{at}.extraArgs[{given.position}]", sentence)
    if spec.kv_cache is not None:
        for given in uses(role.extra_args, ("--kv-cache-dtype",)):
            yield Cause(f"{at}.extraArgs[{given.position}]", "--kv-cache-dtype: the cache binding says it", FORBIDDEN)


def _is_own_port(spec: ModelDeploymentSpec, role: Role, position: int) -> bool:
    """`--port` may repeat what the object says already, for engines whose port the object says."""
    if spec.engine.name not in _PARALLEL_ENGINES:
        return False
    declared = str(role.ports[0].port if role.ports else DEFAULT_PORT)
    return any(given.value == declared for given in uses(role.extra_args, ("--port",)) if given.position == position)


def _environment(spec: ModelDeploymentSpec, role: Role, engine: Engine, at: str) -> Iterator[Cause]:
    weights = WEIGHT_ENV if spec.model.artifact_ref else ()
    for position, variable in enumerate(role.env):
        name, field = variable.name, f"{at}.env[{position}].name"
        if name.startswith(RESERVED_ENV) or name in engine.owned_env:
            yield Cause(field, f"{name} is set by the platform; {_TAKE_OVER}", FORBIDDEN)
        elif name.startswith(weights) if weights else False:
            yield Cause(
                field, f"{name} would name weights or a key for them: the artifact does; {_TAKE_OVER}", FORBIDDEN
            )


def _ports(role: Role, at: str) -> Iterator[Cause]:
    seen: set[tuple[int, str]] = set()
    for position, port in enumerate(role.ports):
        if (port.port, port.protocol) in seen:
            yield Cause(f"{at}.ports[{position}]", f"{port.port}/{port.protocol} is given twice", "FieldValueDuplicate")
        seen.add((port.port, port.protocol))


def _topology(role: Role, at: str) -> Iterator[Cause]:
    level = role.topology.required_level if role.topology else None
    if not level:
        return
    if level == "kubernetes.io/hostname":
        yield Cause(
            f"{at}.topology.requiredLevel", "one host holds one Pod whole anyway; name a level above it", FORBIDDEN
        )
    elif not _LABEL_KEY.fullmatch(level) or len(level.rpartition("/")[2]) > 63:
        yield Cause(f"{at}.topology.requiredLevel", f"{level!r} is not a label key")


def _resources(spec: ModelDeploymentSpec, position: int, pool: InstanceType | None, at: str) -> Iterator[Cause]:
    role = spec.roles[position]
    wanted, field = role.resources, f"{at}.resources"
    part = wanted.accelerator_sliced_memory_percentage or wanted.accelerator_sliced_cores_percentage
    profile = wanted.accelerator_partitioned_profile
    if part and profile:
        yield Cause(
            f"{field}.acceleratorPartitionedProfile", "a partition and a percentage exclude each other", FORBIDDEN
        )
    if (part or profile) and wanted.accelerator not in {None, 1}:
        yield Cause(f"{field}.accelerator", f"is {wanted.accelerator}; a part of a card is a part of exactly 1")
    if pool is None:
        return
    count, status = cards(wanted, pool.spec), pool.status
    if not pool.spec.acceleratable:
        if wanted.accelerator:
            yield Cause(f"{field}.accelerator", f"is {wanted.accelerator}, {pool.name} has no accelerators")
        return
    if not part and not profile and status.accelerator.capacity and count > status.accelerator.capacity:
        yield Cause(f"{field}.accelerator", f"is {count}, the whole pool {pool.name} has {status.accelerator.capacity}")
    shared_with = [r.name for r in spec.roles if r.instance_type == role.instance_type and r.name != role.name]
    if wanted.accelerator == 0 and shared_with:
        yield Cause(
            f"{field}.accelerator",
            f"0 on {pool.name}, which role {shared_with[0]!r} takes cards of; choose a pool without cards",
        )


def _width(role: Role, pool: InstanceType | None, at: str) -> Iterator[Cause]:
    arguments = role.command or role.extra_args
    field = "command" if role.command else "extraArgs"
    total = 1
    for flags in (TENSOR, PIPELINE, DATA):
        found = degree(arguments, flags)
        if isinstance(found, Given):
            sentence = (
                f"{found.flag} {found.value or ''}: must be one whole number above 0, and the same wherever it stands"
            )
            yield Cause(f"{at}.{field}[{found.position}]", sentence)
            return
        total *= found
    if pool is None:
        return
    held = max(1, cards(role.resources, pool.spec)) * role.size
    if total > held:
        yield Cause(f"{at}.{field}", f"the engine would spread over {total} cards, a replica has {held}")
