"""Everything `up` writes before the supervisor starts: ports, credentials, server configurations, env files, the plan.

Must not start processes. Read next: gpubus/stack/layout.py.
"""

from __future__ import annotations

import os
import platform
import re
import socket
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from gpubus.datadir import DataDir, read_json, write, write_json
from gpubus.environment import settings_for_services, variable
from gpubus.refusal import Refusal
from gpubus.stack import clients, nats, redis
from gpubus.stack.certificates import ensure_certificates
from gpubus.stack.credentials import FLEET, ensure, nats_users, node_user, redis_passwords
from gpubus.stack.external import redis_has_users, require_nats
from gpubus.stack.layout import Choices, plan, process_names, settings_of
from gpubus.stack.plan import env_text
from gpubus.stack.ports import FreePorts, require_free
from gpubus.stack.probes import LOOPBACK

if TYPE_CHECKING:
    from gpubus.up import UpOptions


HIGHEST_PORT = 65535
LONGEST_NODE = 63
"""A label value's length: nodes are labelled with their names."""
RUNTIMES = ("process", "simulated")


@dataclass(frozen=True, slots=True)
class Prepared:
    """What was settled."""

    where: DataDir
    choices: Choices
    reservations: list[socket.socket]

    @property
    def url(self) -> str:
        """Where SDKs go."""
        return f"http://{clients.reachable(self.choices.host)}:{self.choices.ports['gateway']}"

    def finish(self) -> None:
        """Write what needs the running gateway: the kubeconfig with its CA."""
        if self.where.ca.exists():
            clients.write_kubeconfig(self.where, self.choices.host, self.choices.ports["gateway-tls"])


def prepare(where: DataDir, options: UpOptions) -> Prepared:
    """Settle and write everything that `check_options` let pass.

    Raises:
        Refusal: an external server does not take us.
    """
    fleet = fleet_facts(options.fleet)
    nats_server = "" if options.nats else nats.find_server()
    redis_server = "" if options.redis else redis.find_server()
    node = node_name()
    ensure(where, (node_user(node), *((FLEET,) if fleet.nodes else ())))
    redis_users = not options.redis or redis_has_users(where, options.redis)
    ports, free = _settle_ports(where, options)
    choices = Choices(
        host=options.host, ports=ports, node=node,
        nats_url=options.nats or f"nats://{LOOPBACK}:{ports['nats']}",
        redis_url=options.redis or f"redis://{LOOPBACK}:{ports['redis']}/0",
        nats_server=nats_server, redis_server=redis_server,
        redis_users=redis_users,
        runtime=options.runtime, fleet=str(options.fleet.absolute()) if options.fleet else "",
        workers=options.workers or default_workers(), settings=settings_for_services() | options.settings, command=options.command, modelstore=fleet.modelstore,
    )  # fmt: skip
    _write(where, choices, options.listen, fleet.nodes)
    return Prepared(where, choices, free.reservations)


def node_name() -> str:
    """This host's name as a node."""
    parts = (re.sub(r"[^a-z0-9-]+", "-", part).strip("-") for part in platform.node().lower().split("."))
    name = ".".join(filter(None, parts))[:LONGEST_NODE].strip("-.")
    return name if name not in {"", FLEET} else "node"


def default_workers() -> int:
    """One gateway worker a core, one core left for the rest."""
    return max(1, len(os.sched_getaffinity(0)) - 1 if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 2) - 1)


def tls_port_of(options: UpOptions) -> int:
    """`--tls-port`, else the port after `--port`, else (0) any."""
    if options.tls_port is not None:
        return options.tls_port
    return options.port + 1 if options.port else 0


def check_options(options: UpOptions) -> None:
    """Refuse what cannot be started, before anything is written.

    Raises:
        Refusal: a port is taken, a server is missing or does not answer, the fleet file is wrong.
    """
    if options.runtime not in RUNTIMES:
        raise Refusal(f"--runtime {options.runtime!r} is not one of {', '.join(RUNTIMES)}.")
    fleet_facts(options.fleet)
    if not options.redis:
        redis.find_server()
    _check_nats(options)
    for port, option in ((options.port, "--port"), (tls_port_of(options), "--tls-port")):
        if port > HIGHEST_PORT:
            raise Refusal(f"{option} {port} is no port: the highest is {HIGHEST_PORT}.")
        require_free(port, options.host, option)


@dataclass(frozen=True, slots=True)
class FleetFacts:
    """What `up` must know of a fleet file."""

    nodes: tuple[str, ...] = ()
    """For the fleet's permissions."""
    modelstore: dict[str, str] = field(default_factory=dict)
    """Settings of the modelstore: its simulated hub."""


def fleet_facts(path: Path | None) -> FleetFacts:
    """Read a fleet file; nothing without one.

    Raises:
        Refusal: the file is wrong, field by field.
    """
    if path is None:
        return FleetFacts()
    from gpubus.fleet_file import expand, load
    from shared.errors import GpubusError
    from shared.units import parse_count

    try:
        fleet = load(path)
    except GpubusError as error:
        raise Refusal(f"{error.message[:1].upper()}{error.message[1:]}.") from error
    settings = {"GPUBUS_SIMULATED_HUB": "true", "GPUBUS_SIMULATED_MODEL_SIZE": str(parse_count(fleet.model_size))}
    return FleetFacts(tuple(plan.name for plan in expand(fleet)), settings if fleet.hub == "simulated" else {})


def _check_nats(options: UpOptions) -> None:
    if options.nats and options.listen:
        raise Refusal("--listen opens the embedded NATS server; with --nats the external one takes other hosts.")
    if options.nats:
        require_nats(options.nats)
        return
    nats.find_server()
    if options.listen:
        require_free(listen_address(options.listen)[1], LOOPBACK, "--listen")


def _settle_ports(where: DataDir, options: UpOptions) -> tuple[dict[str, int], FreePorts]:
    before = {name: int(port) for name, port in read_json(where.ports).items() if str(port).isdigit()}
    free = FreePorts(before)
    ports = {
        "gateway": options.port or free.take("gateway", options.host),
        "gateway-tls": tls_port_of(options) or free.take("gateway-tls", options.host),
    }
    ports |= {name: free.take(name) for name in ("hub", *(() if options.redis else ("redis",)))}
    if not options.nats:
        ports["nats"] = (listen_address(options.listen)[1] if options.listen else 0) or free.take("nats")
    names = process_names(
        workers=options.workers or default_workers(), fleet=options.fleet is not None, nats=False, redis=False
    )
    return ports | {f"health.{name}": free.take(f"health.{name}") for name in names}, free


def _nats_settings(where: DataDir, choices: Choices, listen: str, fleet: tuple[str, ...]) -> nats.NatsSettings:
    port, strict = choices.ports["nats"], variable("GPUBUS_DURABLE") == "strict"
    if not listen:
        return nats.NatsSettings(port, fleet=fleet, strict=strict)
    host = listen_address(listen)[0]
    ensure_certificates(nats.tls_folder(where), host)
    # The address may be one of many; loopback must stay served too, so the server listens on all of them.
    return nats.NatsSettings(port, "0.0.0.0", f"{host}:{port}", fleet, strict)  # noqa: S104 - asked for with --listen


def listen_address(listen: str) -> tuple[str, int]:
    """Host and port (0: any) of `--listen ADDR[:PORT]`.

    Raises:
        Refusal: it is neither.
    """
    host, _, port = listen.rpartition(":") if listen.count(":") == 1 else (listen, "", "")
    if not host or (port and not port.isdigit()):
        raise Refusal(f"--listen {listen!r} is no ADDR or ADDR:PORT, such as 192.0.2.7 or 192.0.2.7:4222.")
    return host, int(port or 0)


def _write(where: DataDir, choices: Choices, listen: str, fleet: tuple[str, ...]) -> None:
    where.pods.mkdir(mode=0o700, exist_ok=True)
    if choices.nats_server:
        nats.write_config(where, _nats_settings(where, choices, listen, fleet), nats_users(where))
    else:
        nats.forget(where)
    if choices.redis_server:
        redis.write_files(where, choices.ports["redis"], redis_passwords(where))
    the_plan = plan(where, choices)
    for process in the_plan.processes:
        if process.ready_by in {"http", "exit"}:
            write(where.env_file(process.name), env_text(settings_of(where, choices, process.name)))
    the_plan.write(where)
    write_json(where.ports, choices.ports, 0o644)
    clients.write_env(where, clients.exports(where, choices.host, choices.ports, choices.nats_url))
