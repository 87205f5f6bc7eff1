"""What stories on a whole stack have in common: manifests, a watch over every card, the facts as users see them.

Uses the clients' side only: REST, NATS with the admin's seed, the command line. Read next: tests/support/stack.py.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import nats
from nats.aio.client import Client

from tests.support.stack import Stack, condition
from tests.support.wait import eventually_sync

WORKER = "/apis/worker.gpustack.ai/v1"
KUEUE = "/apis/kueue.x-k8s.io/v1beta2"
POOL = "gpustack--nvidia-a10g-linux-amd64"
CARDS = 8
CREDITS = 1_600_000
ASK = {"accelerator": 1, "cpu": "4", "ram": "8Gi"}
"""One card and a small part of its node."""


def artifact(name: str, namespace: str) -> dict[str, Any]:
    """Weights that the simulated hub makes up, other ones for each namespace."""
    return {
        "apiVersion": "worker.gpustack.ai/v1", "kind": "ModelArtifact",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"source": {"huggingFace": {"repository": f"stories/{namespace}"}}},
    }  # fmt: skip


def deployment(name: str, namespace: str, *, replicas: int = 1, model: str = "", weights: str = "") -> dict[str, Any]:
    """One whole card a replica on the simulated fleet; `weights` names a ModelArtifact."""
    served: dict[str, Any] = {"name": model or name, **({"artifactRef": {"name": weights}} if weights else {})}
    role = {"name": "server", "replicas": replicas, "instanceType": POOL, "resources": ASK}
    return {
        "apiVersion": "worker.gpustack.ai/v1", "kind": "ModelDeployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"model": served, "engine": {"name": "vLLM"}, "roles": [role]},
    }  # fmt: skip


def path_of(body: dict[str, Any]) -> tuple[str, str]:
    """Collection and object of a ModelArtifact or ModelDeployment."""
    root = f"{WORKER}/namespaces/{body['metadata']['namespace']}/{body['kind'].lower()}s"
    return root, f"{root}/{body['metadata']['name']}"


@contextmanager
def namespace(stack: Stack, name: str) -> Iterator[str]:
    """A namespace for one story; goes with everything in it."""
    status, body = stack.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    assert status == 201, body
    try:
        yield name
    finally:
        stack.request("DELETE", f"/api/v1/namespaces/{name}")
        eventually_sync(lambda: stack.request("GET", f"/api/v1/namespaces/{name}")[0] == 404, timeout=30)


def items(stack: Stack, path: str) -> list[dict[str, Any]]:
    """A whole list."""
    status, body = stack.request("GET", path)
    assert status == 200, body
    return list(body["items"])


def available(stack: Stack, name: str, where: str) -> dict[str, Any]:
    """Wait until a deployment is; its body then."""

    def look() -> dict[str, Any] | None:
        body = stack.get("modeldeployments", name, where)
        return body if condition(body, "Available").get("status") == "True" and settled(body) else None

    return eventually_sync(look, timeout=45, interval=0.05)


def settled(body: dict[str, Any]) -> bool:
    """Whether a deployment has exactly the replicas it asks for."""
    wanted = sum(role["replicas"] for role in body["spec"]["roles"])
    return body["status"]["observedGeneration"] == body["metadata"]["generation"] and (
        sum(role["ready"] for role in body["status"]["roles"])
        == wanted
        == sum(slot["open"] for slot in body["status"]["slots"])
    )


def cards_free(stack: Stack) -> bool:
    """Whether the pool has all cards, no Devices holds any, and there is no Workload and no Pod."""
    pool = stack.get("instancetypes", POOL, None)
    if not pool or pool["status"]["accelerator"]["remaining"] != CARDS:
        return False
    if pool["status"]["cpu"]["remaining"] != pool["status"]["cpu"]["capacity"]:
        return False
    held = [card for body in items(stack, f"{WORKER}/devices") for card in cards_of(body) if card["holders"]]
    return not held and not items(stack, f"{KUEUE}/workloads") and not items(stack, "/api/v1/pods")


def cards_of(devices: dict[str, Any]) -> list[dict[str, Any]]:
    """Every card of one node, as its status has it."""
    groups = (devices.get("status") or {}).get("groups") or ()
    return [card for group in groups for card in group["accelerators"]]


class Watch:
    """A running watch of one collection: each change goes to `look` in a thread of its own."""

    def __init__(self, stack: Stack, path: str, look: Callable[[str, dict[str, Any]], None]) -> None:
        exports = stack.exports()
        place = urlsplit(exports["GPUBUS_URL"])
        link = http.client.HTTPConnection(place.hostname or "", place.port, timeout=300)
        link.request("GET", f"{path}?watch=true", headers={"Authorization": f"Bearer {exports['GPUBUS_TOKEN']}"})
        # The connection object lets go of a socket whose answer ends with it; this keeps hold of it.
        self._socket = link.sock
        self._answer = link.getresponse()
        assert self._answer.status == 200, self._answer.read()
        self._look = look
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        with self._answer:
            while line := self._line():
                event = json.loads(line)
                if event["type"] != "BOOKMARK":
                    self._look(event["type"], event["object"])

    def _line(self) -> bytes:
        try:
            return self._answer.readline()
        except (OSError, http.client.HTTPException):
            return b""

    def end(self) -> None:
        """Stop it."""
        self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(10)
        self._socket.close()


class Cards:
    """Follows every revision of Devices and Workloads and notes each card that two hold at once."""

    def __init__(self, stack: Stack) -> None:
        self.doubled: list[str] = []
        self.seen: set[str] = set()
        self._holding: dict[str, frozenset[str]] = {}
        self._stack = stack
        self._watches: list[Watch] = []

    def __enter__(self) -> Self:
        self._follow(f"{WORKER}/devices", self._devices)
        self._follow(f"{KUEUE}/workloads", self._workload)
        return self

    def __exit__(self, *_: object) -> None:
        for watch in self._watches:
            watch.end()

    def _follow(self, path: str, look: Callable[[str, dict[str, Any]], None]) -> None:
        self._watches.append(Watch(self._stack, path, look))

    def _devices(self, _: str, body: dict[str, Any]) -> None:
        for card in cards_of(body):
            if len(card["holders"]) > 1 or card["allocated"] > CREDITS:
                self.doubled.append(f"{card['id']} is held by {card['holders']} with {card['allocated']}")

    def _workload(self, change: str, body: dict[str, Any]) -> None:
        uid, status = body["metadata"]["uid"], body.get("status") or {}
        self.seen.add(uid)
        gone = change == "DELETED" or condition(body, "Finished").get("status") == "True"
        sets = () if gone else (status.get("admission") or {}).get("podSetAssignments") or ()
        self._holding[uid] = frozenset(device for one in sets for device in one["devices"])
        for other, devices in self._holding.items():
            if other != uid and devices & self._holding[uid]:
                self.doubled.append(
                    f"{body['metadata']['name']} got {devices & self._holding[uid]} while another had them"
                )


class Facts:
    """`gpubus events --raw` of one stack, running; `seen` are the envelopes so far."""

    def __init__(self, stack: Stack) -> None:
        words = [sys.executable, "-m", "gpubus.main", "events", "--raw"]
        self.process = subprocess.Popen(
            words, env=stack.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self.seen: list[dict[str, Any]] = []
        self._stack = stack
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        """Returns when it surely listens: a fact made for it has been seen."""
        tries = 0

        def heard() -> bool:
            nonlocal tries
            tries += 1
            body = {"metadata": {"name": f"hear-{os.getpid()}-{tries}"}}
            self._stack.request("POST", "/api/v1/namespaces/default/configmaps", body)
            self._stack.request("DELETE", f"/api/v1/namespaces/default/configmaps/{body['metadata']['name']}")
            return bool(self.seen)

        try:
            eventually_sync(heard, timeout=30, interval=0.2)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait(10)
        self._reader.join(10)

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                self.seen.append(json.loads(line.partition(" ")[2]))

    def of(self, namespace: str) -> list[dict[str, Any]]:
        """Envelopes about one namespace, in the order of their commits."""
        found = [one for one in self.seen if one["data"].get("namespace") == namespace]
        return sorted(found, key=lambda one: int(one["resourceversion"]))

    def wait(self, namespace: str, fact: str, count: int = 1) -> list[dict[str, Any]]:
        """Wait for `count` facts of one kind (`replica.ready`) about one namespace."""

        def look() -> list[dict[str, Any]] | None:
            found = [one for one in self.of(namespace) if what(one) == fact]
            return found if len(found) >= count else None

        return eventually_sync(look, timeout=30)


def what(envelope: dict[str, Any]) -> str:
    """`workload.admitted`."""
    return ".".join(str(envelope["type"]).split(".")[1:3])


@asynccontextmanager
async def connect(stack: Stack) -> AsyncIterator[Client]:
    """nats-py with nothing but the variables of the stack's `env` file."""
    env = stack.exports()
    client = await nats.connect(env["NATS_URL"], nkeys_seed=env["NATS_NKEY"], inbox_prefix="_INBOX_admin")
    try:
        yield client
    finally:
        await client.close()


def log_lines(stack: Stack, *levels: str) -> list[str]:
    """Lines of all logs at these levels, and tracebacks."""
    found = []
    for path in sorted(Path(stack.dir, "log").glob("*.log")):
        lines = path.read_text(errors="replace").splitlines()
        found += [
            f"{path.name}: {line}"
            for line in lines
            if "Traceback" in line or any(f'"level":"{level}"' in line for level in levels)
        ]
    return found
