"""Credentials for others: hosts that join, and external servers that must know our users.

Secrets go to standard output only, where the user sends them. Read next: gpubus/stack/credentials.py.
"""

from __future__ import annotations

import json
import signal

from gpubus.datadir import DataDir, resolve
from gpubus.refusal import Refusal
from gpubus.stack import nats, redis
from gpubus.stack.credentials import ADMIN, ensure, nats_users, node_user, redis_passwords, seed_file
from gpubus.stack.refusals import recorded


def node_credentials(name: str, data_dir: str) -> str:
    """A node's credentials file (JSON): its NKey seed and the CA it must trust; the running server learns the user.

    Raises:
        Refusal: bad name, or no stack was started here.
    """
    where = resolve(data_dir)
    if not where.plan.exists():
        raise Refusal(f"No stack was ever started in {where.root}: run `gpubus up` first, or say --data-dir.")
    user = node_user(name)
    ensure(where, (user,))
    reload_users(where)
    body = {
        "node": name,
        "user": user,
        "seed": seed_file(where, user).read_text().strip(),
        "ca": nats.ca_text(where),
    }
    return json.dumps(body, indent=1) + "\n"


def reload_users(where: DataDir) -> None:
    """Write nats.conf again with every user that has a seed, and have the running embedded server read it."""
    settings = nats.kept(where)
    if settings is None:
        return
    nats.write_config(where, settings, nats_users(where))
    for _, process in recorded(where):
        if process.name == "nats-server":
            process.send(signal.SIGHUP)


def export(data_dir: str) -> str:
    """What an operator installs on external servers: the NATS `authorization` block and the Redis ACL lines."""
    from shared.bus.permissions import nats_config
    from shared.store.acl import acl_file

    where = resolve(data_dir)
    ensure(where, ())
    passwords = redis_passwords(where)
    return (
        f"# NATS: put this block into the server's configuration and reload it.\n{nats_config(nats_users(where))}\n"
        f"# Redis: the content of its aclfile (or one ACL SETUSER a line).\n{acl_file(passwords, passwords[ADMIN])}"
    )


def write_for_containers(where: DataDir, node: str) -> None:
    """What docker-compose.yml mounts: credentials, nats.conf and redis.conf, listening for the other containers.

    Raises:
        Refusal: `node` is no node name.
    """
    ensure(where, (node_user(node),))
    everywhere = "0.0.0.0"  # noqa: S104 - inside the compose network
    nats.write_config(where, nats.NatsSettings(4222, everywhere), nats_users(where))
    redis.write_files(where, 6379, redis_passwords(where), everywhere)
