"""A gateway process with its own servers, and the clients that people use on it: kubectl, plain HTTPS, the bus.

Must not start other services; the gateway owns enough kinds to be tried alone. Read next: tests/integration/gateway.
"""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
import os
import ssl
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shared.bus.streams import migrate
from tests.support.children import Child
from tests.support.servers import LOOPBACK, NatsServer, RedisServer, free_port

ADMIN_TOKEN = "admin-0123456789abcdef0123456789abcdef"
KUBECTL = Path(sys.executable).parent / "kubectl"
JSON_TYPE = "application/json"


@dataclass
class Answer:
    """What came back."""

    status: int
    headers: http.client.HTTPMessage
    raw: bytes

    @property
    def body(self) -> Any:
        """As JSON."""
        return json.loads(self.raw)

    @property
    def reason(self) -> str:
        """Of a Status."""
        return str(self.body.get("reason", ""))

    @property
    def fields(self) -> list[str]:
        """The fields that a Status names as causes."""
        return [cause["field"] for cause in (self.body.get("details") or {}).get("causes", ())]


@dataclass
class Watch:
    """A running watch: its events as they come."""

    response: http.client.HTTPResponse
    connection: http.client.HTTPConnection
    events: list[dict[str, Any]] = field(default_factory=list)
    ended: bool = False

    def read(self) -> None:
        """Read until the server ends it; runs in a thread."""
        try:
            while line := self.response.readline():
                self.events.append(json.loads(line))
        except (OSError, ValueError, AttributeError):
            pass
        self.ended = True

    def types(self) -> list[tuple[str, str]]:
        """(type, name) of each event but bookmarks."""
        return [
            (e["type"], e["object"].get("metadata", {}).get("name", "")) for e in self.events if e["type"] != "BOOKMARK"
        ]


class Gateway:
    """One gateway on fresh servers."""

    def __init__(self) -> None:
        self.dir = Path(tempfile.mkdtemp(prefix="gpubus-test-gateway-"))
        self.redis = RedisServer(fsync="no")
        self.nats = NatsServer('ping_interval: "1s"\nping_max: 2')
        self.tls_port = free_port()
        (self.dir / "run").mkdir()
        (self.dir / "admin-token").write_text(ADMIN_TOKEN + "\n")
        self.children: list[Child] = []
        self.child = self.copy("gateway")

    def copy(self, name: str, module: str = "services.gateway", *words: str, **more: str) -> Child:
        """A gateway process (not started) on this data dir, or another service's; it ends with the gateway."""
        settings = {
            "GPUBUS_NATS_URL": self.nats.url,
            "GPUBUS_REDIS_URL": self.redis.url,
            "GPUBUS_DATA_DIR": str(self.dir),
            "GPUBUS_TLS_PORT": str(self.tls_port),
            "GPUBUS_ADMIN_TOKEN_FILE": str(self.dir / "admin-token"),
            **more,
        }
        self.children.append(Child(self.dir, name, (module, *words), settings))
        return self.children[-1]

    def start(self) -> Gateway:
        """Servers, streams, process; returns when it is ready."""
        self.redis.start()
        self.nats.start()
        asyncio.run(migrate(self.nats.url))
        self.child.start().ready()
        return self

    def close(self) -> None:
        """End everything."""
        for child in reversed(self.children):
            child.end()
        self.redis.close()
        self.nats.close()
        subprocess.run(["rm", "-rf", str(self.dir)], check=True)

    @property
    def ca(self) -> Path:
        """The authority's certificate."""
        return self.dir / "tls" / "ca.crt"

    @contextmanager
    def connection(self, timeout: float = 20) -> Iterator[http.client.HTTPSConnection]:
        """One TLS connection that checks the server."""
        link = http.client.HTTPSConnection(
            LOOPBACK, self.tls_port, timeout=timeout, context=ssl.create_default_context(cafile=str(self.ca))
        )
        try:
            yield link
        finally:
            link.close()

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        token: str | None = ADMIN_TOKEN,
        content: str | None = JSON_TYPE,
        accept: str = JSON_TYPE,
        headers: dict[str, str] | None = None,
    ) -> Answer:
        """One request; `body` is bytes, or JSON to be."""
        sent = {"Accept": accept, **({"Authorization": f"Bearer {token}"} if token else {}), **(headers or {})}
        data = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
        if data is not None and content:
            sent["Content-Type"] = content
        with self.connection() as link:
            link.request(method, path, data, sent)
            response = link.getresponse()
            return Answer(response.status, response.headers, response.read())

    @contextmanager
    def watch(self, path: str, accept: str = JSON_TYPE, token: str = ADMIN_TOKEN) -> Iterator[Watch]:
        """A watch in the background; closed at the end of the block."""
        link = http.client.HTTPSConnection(
            LOOPBACK, self.tls_port, timeout=30, context=ssl.create_default_context(cafile=str(self.ca))
        )
        link.request("GET", path, headers={"Accept": accept, "Authorization": f"Bearer {token}"})
        response = link.getresponse()
        assert response.status == 200, response.read()
        running = Watch(response, link)
        thread = threading.Thread(target=running.read, daemon=True)
        thread.start()
        try:
            yield running
        finally:
            if link.sock is not None:
                link.sock.shutdown(2)
            thread.join(timeout=5)
            link.close()

    def kubeconfig(self, token: str = ADMIN_TOKEN) -> Path:
        """A kubeconfig for one token."""
        path = self.dir / f"kubeconfig-{abs(hash(token))}"
        cluster = {
            "server": f"https://{LOOPBACK}:{self.tls_port}",
            "certificate-authority-data": base64.b64encode(self.ca.read_bytes()).decode(),
        }
        body = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "g", "cluster": cluster}],
            "users": [{"name": "u", "user": {"token": token}}],
            "contexts": [{"name": "g", "context": {"cluster": "g", "user": "u", "namespace": "default"}}],
            "current-context": "g",
        }
        path.write_text(json.dumps(body))
        return path

    def kubectl(self, *words: str, text: str | None = None, fails: bool = False, token: str = ADMIN_TOKEN) -> str:
        """kubectl's output (stdout, then stderr); its exit status must be as expected."""
        env = {**os.environ, "KUBECONFIG": str(self.kubeconfig(token)), "HOME": str(self.dir), "NO_COLOR": "1"}
        done = subprocess.run(
            [str(KUBECTL), *words], check=False, env=env, input=text, capture_output=True, text=True, timeout=40
        )
        said = done.stdout + done.stderr
        assert bool(done.returncode) is fails, f"kubectl {' '.join(words)} exited {done.returncode}\n{said}"
        return said

    def new_key(self, name: str, role: str, namespace: str = "default") -> str:
        """Create an ApiKey; its token."""
        body = {"metadata": {"name": name}, "spec": {"role": role}}
        answer = self.call("POST", f"/apis/gpubus.io/v1/namespaces/{namespace}/apikeys", body)
        assert answer.status == 201, answer.raw
        return str(answer.body["status"]["token"])
