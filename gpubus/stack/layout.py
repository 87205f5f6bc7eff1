"""The stack itself: which processes `up` starts, with which settings, in which order, and where each listens.

Pure but for reading the data dir's path. Must not start or write anything. Read next: gpubus/up.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from gpubus.datadir import DataDir
from gpubus.stack.credentials import ADMIN, FLEET, node_user, password_file, seed_file
from gpubus.stack.plan import STOP_PODS, STOP_SERVERS, STOP_SERVICES, ProcessPlan, StackPlan, python
from gpubus.stack.probes import LOOPBACK
from shared.subjects import SERVICES

AGENTS = ("deployer", "modelstore", "discovery")
PODS_PATIENCE, SERVICE_PATIENCE, SERVER_PATIENCE = 45, 22, 10
"""Seconds from SIGTERM to SIGKILL: a Pod's usual grace is 30, a service drains for up to 20."""
Command = Callable[..., Sequence[str]]
WORKER = "gateway-worker-"
# What the demo's first answer waits for starts first; on few cores the imports take turns.
_START_ORDER = ("discovery", "gateway", "scheduler", "modelstore", "deployer", "kvcache")


@dataclass(frozen=True, slots=True)
class Choices:
    """What the user chose, with every port settled."""

    host: str
    ports: Mapping[str, int]
    """gateway, gateway-tls, hub, nats, redis, health.<process>."""
    node: str
    nats_url: str
    redis_url: str
    """Without user or password when `redis_users`."""
    nats_server: str = ""
    """The binary; empty: an external server."""
    redis_server: str = ""
    redis_users: bool = True
    """Each service has its own Redis user; False: the URL as given is for all."""
    runtime: str = "process"
    fleet: str = ""
    """Path of the fleet file; empty for none."""
    workers: int = 1
    settings: Mapping[str, str] = field(default_factory=dict)
    """More GPUBUS_ settings for every process."""
    modelstore: Mapping[str, str] = field(default_factory=dict)
    """More settings of the modelstore alone."""
    command: Command = python
    """The command line of a service's module with its words."""


def process_names(*, workers: int, fleet: bool, nats: bool = True, redis: bool = True) -> list[str]:
    """Everything that `pids.json` will name beside the supervisor."""
    return [
        *(["nats-server"] if nats else []),
        *(["redis-server"] if redis else []),
        *SERVICES,
        *(f"{service}-agent" for service in AGENTS),
        *(f"{WORKER}{number}" for number in range(workers)),
        *(["fleet"] if fleet else []),
    ]


def plan(where: DataDir, choices: Choices) -> StackPlan:
    """The processes in start order."""
    servers = list(_servers(where, choices))
    migrate = ProcessPlan("migrate", [*python("gpubus.main", "migrate")], "exit", after=[p.name for p in servers])
    # Services do not wait for their streams: they ask again, and most of their start is imports.
    after = [process.name for process in servers]
    return StackPlan([*servers, migrate, *(_named(choices, process, after) for process in _services(choices))])


def _servers(where: DataDir, choices: Choices) -> Iterator[ProcessPlan]:
    if choices.nats_server:
        argv = [choices.nats_server, "-c", str(where.run / "nats" / "nats.conf")]
        yield ProcessPlan(
            "nats-server", argv, "nats", choices.ports["nats"], stage=STOP_SERVERS, patience=SERVER_PATIENCE
        )
    if choices.redis_server:
        argv = [choices.redis_server, str(where.run / "redis" / "redis.conf")]
        repair = [*python("gpubus.stack.aof", where.root / "redis")]
        port = choices.ports["redis"]
        yield ProcessPlan(
            "redis-server", argv, "redis", port, stage=STOP_SERVERS, repair=repair, patience=SERVER_PATIENCE
        )


def _services(choices: Choices) -> Iterator[ProcessPlan]:
    for service in _START_ORDER:
        yield ProcessPlan(service, [*choices.command(f"services.{service}")])
    for number in range(choices.workers):
        yield ProcessPlan(f"{WORKER}{number}", [*choices.command("services.gateway", "worker")])
    for service in reversed(AGENTS):
        stage = STOP_PODS if service == "deployer" else STOP_SERVICES
        yield ProcessPlan(f"{service}-agent", [*choices.command(f"services.{service}", "agent")], stage=stage)
    if choices.fleet:
        yield ProcessPlan("fleet", [*choices.command("gpubus.fleet")], stage=STOP_PODS)


def _named(choices: Choices, process: ProcessPlan, after: list[str]) -> ProcessPlan:
    """With what belongs to this copy alone, so that a second copy can share the env file."""
    port = choices.ports[f"health.{process.name}"]
    own = {"GPUBUS_INSTANCE": process.name, "GPUBUS_HEALTH_PORT": str(port)}
    patience = PODS_PATIENCE if process.stage == STOP_PODS else SERVICE_PATIENCE
    if process.stage == STOP_PODS:
        own["GPUBUS_DRAIN_SECONDS"] = str(PODS_PATIENCE - 5)
    return ProcessPlan(process.name, process.argv, "http", port, after, process.stage, own=own, patience=patience)


def settings_of(where: DataDir, choices: Choices, process: str) -> dict[str, str]:
    """One process's env file."""
    service = process.removesuffix("-agent").partition("-worker-")[0]
    common = {
        **choices.settings,
        "GPUBUS_NATS_URL": choices.nats_url,
        "GPUBUS_DATA_DIR": str(where.root),
        "GPUBUS_NODE": choices.node,
    }
    if process in {"fleet", "migrate"}:
        user = FLEET if process == "fleet" else ADMIN
        return common | {"GPUBUS_NATS_SEED_FILE": str(seed_file(where, user)), "GPUBUS_FLEET_FILE": choices.fleet}
    if process.endswith("-agent"):
        user = node_user(choices.node)
        return common | {"GPUBUS_NATS_SEED_FILE": str(seed_file(where, user)), "GPUBUS_RUNTIME": choices.runtime}
    return (
        common
        | {"GPUBUS_NATS_SEED_FILE": str(seed_file(where, service))}
        | _redis(where, choices, service)
        | _listeners(where, choices, service)
    )


def _redis(where: DataDir, choices: Choices, service: str) -> dict[str, str]:
    if not choices.redis_users:
        return {"GPUBUS_REDIS_URL": choices.redis_url}
    scheme, _, rest = choices.redis_url.partition("://")
    return {
        "GPUBUS_REDIS_URL": f"{scheme}://{service}@{rest}",
        "GPUBUS_REDIS_PASSWORD_FILE": str(password_file(where, service)),
    }


def _listeners(where: DataDir, choices: Choices, service: str) -> dict[str, str]:
    if service == "gateway":
        return {
            "GPUBUS_HOST": choices.host,
            "GPUBUS_PORT": str(choices.ports["gateway"]),
            "GPUBUS_TLS_PORT": str(choices.ports["gateway-tls"]),
            "GPUBUS_ADMIN_TOKEN_FILE": str(where.admin_token),
        }
    if service == "modelstore":
        return {"GPUBUS_HUB_HOST": LOOPBACK, "GPUBUS_HUB_PORT": str(choices.ports["hub"]), **choices.modelstore}
    return {}
