"""Files for the stack's clients: `env` (shell exports) and `kubeconfig`.

Must not make certificates: the gateway does, and `up` waits for its CA. Read next: gpubus/up.py.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping

from gpubus.datadir import DataDir, write
from gpubus.stack.credentials import ADMIN, seed_file
from gpubus.stack.probes import LOOPBACK


def reachable(host: str) -> str:
    """The address a client on this host uses for a listener's address."""
    return {"0.0.0.0": LOOPBACK, "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)  # noqa: S104 - compared


def exports(where: DataDir, host: str, ports: Mapping[str, int], nats_url: str) -> dict[str, str]:
    """The variables of `env`."""
    url = f"http://{reachable(host)}:{ports['gateway']}"
    token = where.admin_token.read_text().strip()
    seed = str(seed_file(where, ADMIN))
    return {
        "GPUBUS_URL": url,
        "GPUBUS_TOKEN": token,
        "OPENAI_BASE_URL": f"{url}/v1",
        "OPENAI_API_KEY": token,
        "NATS_URL": nats_url,
        "NATS_CREDS": seed,
        "NATS_NKEY": seed,
    }


def write_env(where: DataDir, variables: Mapping[str, str]) -> None:
    """Write `env`, to be read by `. D/env`."""
    write(where.env, "".join(f"export {name}='{value}'\n" for name, value in variables.items()))


def write_kubeconfig(where: DataDir, host: str, tls_port: int) -> None:
    """Write `kubeconfig`: the TLS listener, its CA, the admin's token. JSON is YAML, and kubectl reads it."""
    cluster = {
        "server": f"https://{reachable(host)}:{tls_port}",
        "certificate-authority-data": base64.b64encode(where.ca.read_bytes()).decode(),
    }
    body = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "gpubus", "cluster": cluster}],
        "users": [{"name": "admin", "user": {"token": where.admin_token.read_text().strip()}}],
        "contexts": [{"name": "gpubus", "context": {"cluster": "gpubus", "user": "admin", "namespace": "default"}}],
        "current-context": "gpubus",
    }
    write(where.kubeconfig, json.dumps(body, indent=1) + "\n")
