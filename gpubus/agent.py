"""`gpubus agent --join`: this host's three agents, supervised as `up` supervises a stack; `down` and `status` work too.

Needs NATS alone: no Redis, no gateway. Must not start controllers. Read next: gpubus/access.py, which issues the
credentials.
"""

from __future__ import annotations

import json
import os
import socket
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from gpubus.datadir import DataDir, write
from gpubus.down import down
from gpubus.environment import settings_for_services
from gpubus.refusal import Refusal
from gpubus.stack.external import require_nats
from gpubus.stack.launch import hold, interruptible, spawn_supervisor, wait_ready
from gpubus.stack.layout import AGENTS
from gpubus.stack.plan import STOP_PODS, STOP_SERVICES, ProcessPlan, StackPlan, env_text, python
from gpubus.stack.ports import FreePorts
from gpubus.stack.probes import LOOPBACK
from gpubus.stack.refusals import check_free, check_host, lock
from gpubus.terminal import tick


@dataclass(frozen=True, slots=True)
class Membership:
    """What `gpubus node credentials` printed."""

    node: str
    user: str
    seed: str
    ca: str


def run(where: DataDir, url: str, credentials: Path, *, allow_process: bool, detach: bool) -> int:
    """Join; return when ready (detached) or when it ends. The exit code.

    Raises:
        Refusal: bad credentials, nobody answers, or a stack runs in this data dir.
    """
    membership = read(credentials)
    if not allow_process:
        raise Refusal(
            "A joined host runs Pods as plain processes of this user: say --allow-process if that is what you want."
        )
    interruptible()
    check_host(where)
    check_free(where)
    require_nats(url)
    held = lock(where)
    free = FreePorts()
    try:
        _write(where, url, membership, free)
        supervisor = spawn_supervisor(where, held, free.reservations)
    finally:
        os.close(held)
    try:
        wait_ready(where, supervisor, lambda name: print(f"  {tick()} {name}", flush=True))
    except BaseException:
        down(where)
        raise
    print(f"{membership.node} has joined {url}", flush=True)
    if not detach:
        print(hold(where, supervisor), flush=True)
    return 0


def read(path: Path) -> Membership:
    """The credentials file.

    Raises:
        Refusal: it is missing or is none.
    """
    try:
        body = json.loads(path.read_text())
        return Membership(*(str(body[name]) for name in ("node", "user", "seed", "ca")))
    except OSError as error:
        raise Refusal(f"The credentials {path} cannot be read: {error.strerror}.") from error
    except (ValueError, KeyError, TypeError) as error:
        raise Refusal(
            f"{path} holds no credentials: make them with `gpubus node credentials NAME > FILE` on the system."
        ) from error


def own_address(url: str) -> str:
    """This host's address on the way to the system: where its gateways will find the engines."""
    parts = urlsplit(url.partition(",")[0])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((parts.hostname or "", parts.port or 4222))  # a datagram socket: nothing is sent
        except OSError:
            return LOOPBACK
        return str(probe.getsockname()[0])


def _write(where: DataDir, url: str, membership: Membership, free: FreePorts) -> None:
    folder = where.run / "nats"
    write(folder / f"{membership.user}.seed", membership.seed, durable=True)
    settings = settings_for_services() | {
        "GPUBUS_NATS_URL": url,
        "GPUBUS_NATS_SEED_FILE": str(folder / f"{membership.user}.seed"),
        "GPUBUS_DATA_DIR": str(where.root),
        "GPUBUS_NODE": membership.node,
        "GPUBUS_RUNTIME": "process",
        "GPUBUS_POD_HOST": own_address(url),
    }
    if membership.ca:
        write(folder / "ca.crt", membership.ca, durable=True)
        settings["GPUBUS_NATS_CA_FILE"] = str(folder / "ca.crt")
    processes = []
    for service in reversed(AGENTS):
        name = f"{service}-agent"
        port = free.take(f"health.{name}")
        own = {"GPUBUS_INSTANCE": name, "GPUBUS_HEALTH_PORT": str(port)}
        stage = STOP_PODS if service == "deployer" else STOP_SERVICES
        processes.append(
            ProcessPlan(name, [*python(f"services.{service}", "agent")], "http", port, stage=stage, own=own)
        )
        write(where.env_file(name), env_text(settings))
    where.pods.mkdir(mode=0o700, exist_ok=True)
    StackPlan(processes).write(where)
