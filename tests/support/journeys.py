"""The journey that stories about crashes repeat: a model is applied, served, deleted, and what must hold afterwards.

A `Room` is one long-lived stack with a small fleet whose processes look for fault orders in a directory. Everything is
looked at from outside: REST, the facts in the streams, every revision in the store's log, the ledgers, the engines.
Read next: tests/e2e/test_kills.py.
"""

from __future__ import annotations

import asyncio
import http.client
import itertools
import json
import os
import re
import shutil
import signal
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import nats
import nats.errors
import orjson
import redis

from shared import subjects
from tests.support.aof import cut_file
from tests.support.children import Child
from tests.support.stack import Stack, alive, condition
from tests.support.wait import eventually_sync

T = TypeVar("T")
POOL = "gpustack--nvidia-a10g-linux-amd64"
HOST_POOL = "gpustack--generic-linux-amd64"
CARDS = 8
CREDITS = 1_600_000
PATIENCE = 40.0
WORKER = "/apis/worker.gpustack.ai/v1"
KUEUE = "/apis/kueue.x-k8s.io/v1beta2"
_OWN = {"ModelArtifact": "modelartifacts", "ModelDeployment": "modeldeployments"}
_AGAIN = {429, 502, 503, 504}
LOST = (urllib.error.URLError, ConnectionError, http.client.HTTPException, TimeoutError)
_FIELDS = {"epoch", "changes"}

# Serves HTTP and notes each of its starts, so that nobody has to believe anybody about how often it was started.
ENGINE = """
import http.server, json, os, sys
with open(os.environ["STARTS"], "a") as f: f.write(f"{os.getpid()}\\n")
class H(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *_): pass
    def do_GET(self): self.say({})
    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        m = {"role": "assistant", "content": "here"}
        self.say({"id": "1", "object": "chat.completion", "created": 0, "model": "m",
                  "choices": [{"index": 0, "message": m, "finish_reason": "stop"}],
                  "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}})
    def say(self, body):
        raw = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(raw)))
        self.send_header("x-gpubus-replica", os.environ["GPUBUS_REPLICA_TOKEN"])
        self.end_headers()
        self.wfile.write(raw)
http.server.ThreadingHTTPServer((os.environ["GPUBUS_HOST"], int(os.environ["GPUBUS_PORT"])), H).serve_forever()
"""


def fleet_text(*faults: dict[str, Any], start_seconds: float = 0.0) -> str:
    """Two nodes with four cards each."""
    cards = {"manufacturer": "nvidia", "product": "NVIDIA A10G", "memory": "23028Mi", "cores": 80, "count": 4}
    node = {"name": "sim", "count": 2, "cpu": 32, "memory": "128Gi", "devices": [cards]}
    body = {"hub": "simulated", "engineStartSeconds": start_seconds, "nodes": [node], "faults": list(faults)}
    return json.dumps(body)


def artifact(name: str, repository: str = "") -> dict[str, Any]:
    """Weights; by default ones that the simulated hub makes up."""
    return {
        "apiVersion": "worker.gpustack.ai/v1", "kind": "ModelArtifact", "metadata": {"name": name, "namespace": "default"},
        "spec": {"source": {"huggingFace": {"repository": repository or f"Qwen/{name}"}}},
    }  # fmt: skip


def deployment(name: str, replicas: int) -> dict[str, Any]:
    """One card a replica on the fleet."""
    role = {"name": "server", "replicas": replicas, "instanceType": POOL, "resources": {"accelerator": 1}}
    return _deployment(name, role, {"name": "vLLM"})


def on_host(name: str, starts: Path) -> dict[str, Any]:
    """One real process on this host, which notes its starts in a file."""
    role = {
        "name": "server", "replicas": 1, "instanceType": HOST_POOL,
        "resources": {"accelerator": 0, "cpu": "1", "ram": "64Mi"},
        "command": [sys.executable, "-S", "-E", "-c", ENGINE], "env": [{"name": "STARTS", "value": str(starts)}],
    }  # fmt: skip
    return _deployment(name, role, {"name": "Custom"})


def _deployment(name: str, role: dict[str, Any], engine: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "worker.gpustack.ai/v1", "kind": "ModelDeployment",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"model": {"name": name, "artifactRef": {"name": name}}, "engine": engine, "roles": [role]},
    }  # fmt: skip


@dataclass(frozen=True)
class Mark:
    """A moment with nothing deployed, from which a story is told."""

    revision: int
    sequences: dict[str, int]
    dead: int


@dataclass
class Told:
    """What happened since a mark."""

    facts: list[dict[str, Any]] = field(default_factory=list)
    """Envelopes, per stream in order."""
    ids: Counter[str] = field(default_factory=Counter)

    def of(self, what: str, **about: Any) -> list[dict[str, Any]]:
        """The data of facts like `replica.ready`."""
        found = [one["data"] for one in self.facts if ".".join(one["type"].split(".")[1:3]) == what]
        return [data for data in found if all(data.get(key) == value for key, value in about.items())]


class Room:
    """One stack, and all that stories about crashes do with it."""

    def __init__(self, directory: Path) -> None:
        self.faults = directory / "faults"
        self.faults.mkdir()
        self.fleet_file = directory / "fleet.yaml"
        self.fleet_file.write_text(fleet_text())
        env = {"GPUBUS_FAULTS": f"*@{self.faults}"}
        self.stack = Stack(directory / "data", "--fleet", str(self.fleet_file), env=env)
        self.directory = directory
        self._names = itertools.count()

    def name(self) -> str:
        """For the next deployment; never used twice."""
        return f"m{next(self._names)}"

    # Processes

    def states(self) -> dict[str, dict[str, Any]]:
        """What the supervisor says of each process."""
        path = self.stack.dir / "run" / "state.json"
        return dict(json.loads(path.read_text())["processes"]) if path.exists() else {}

    def starts(self, process: str) -> int:
        """How often it was started."""
        return int(self.states()[process]["starts"])

    def order(self, process: str, point: str, action: str = "kill", passing: int = 1) -> Path:
        """Let a process do something to itself when it passes a point; the file is gone once it has."""
        path, draft = self.faults / f"{process}.{point}", self.faults / "draft"
        draft.write_text(f"{action} {passing}")
        draft.replace(path)
        return path

    @contextmanager
    def killed(self, process: str, point: str, passing: int = 1) -> Iterator[None]:
        """What happens inside makes the process pass the point, and die there; afterwards it is back."""
        before = self.starts(process)
        flag = self.order(process, point, passing=passing)
        try:
            yield
            eventually_sync(lambda: not flag.exists(), timeout=PATIENCE)
        finally:
            flag.unlink(missing_ok=True)
        self.back(process, before)

    def kill(self, process: str) -> int:
        """kill -9, and see it gone; how often it had been started.

        A request that reaches a process while it dies is answered by nobody; its sender would wait for its deadline.
        """
        before = self.starts(process)
        pid = self.stack.kill(process)
        eventually_sync(lambda: not alive(pid), timeout=PATIENCE)
        return before

    def back(self, process: str, before: int) -> None:
        """Wait until it was started again and is ready."""

        def check() -> bool:
            state = self.states()[process]
            return state["starts"] > before and state["state"] == "ready"

        eventually_sync(check, timeout=PATIENCE)

    @contextmanager
    def unattended(self) -> Iterator[None]:
        """The supervisor stands still, so that what is killed stays down."""
        pid = self.stack.pids()["supervisor"]
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    def end(self, process: str) -> None:
        """kill -9 a process that nobody starts again, and see it gone."""
        pid = self.stack.kill(process)
        eventually_sync(lambda: not alive(pid), timeout=PATIENCE)

    def cut_store(self, count: int) -> None:
        """A lost second: the store is killed and comes back without its last `count` transactions."""
        before = self.starts("redis-server")
        with self.unattended():
            self.end("redis-server")
            cut_file(max((self.stack.dir / "redis" / "appendonlydir").glob("*.incr.aof")), count)
        self.back("redis-server", before)

    def copy_bus(self, to: Path) -> None:
        """A copy of what the bus has on disk, as a host crash or a backup would keep it."""
        before = self.starts("nats-server")
        with self.unattended():
            self.end("nats-server")
            shutil.copytree(self.stack.dir / "nats", to)
        self.back("nats-server", before)

    def replace_bus(self, older: Path | None) -> None:
        """The bus is killed and comes back with an older store, or with none at all."""
        before = self.starts("nats-server")
        with self.unattended():
            self.end("nats-server")
            shutil.rmtree(self.stack.dir / "nats")
            if older is None:
                (self.stack.dir / "nats").mkdir()
            else:
                shutil.copytree(older, self.stack.dir / "nats")
        self.back("nats-server", before)

    def second(self, service: str) -> Child:
        """Another copy, as the runbook says: the service's env file and nothing else."""
        lines = (self.stack.dir / "run" / f"{service}.env").read_text().splitlines()
        settings = dict(line.split("=", 1) for line in lines)
        return Child(self.directory, f"{service}-2", (f"services.{service}",), settings)

    def restart_fleet(self, *faults: dict[str, Any], start_seconds: float = 0.0) -> None:
        """Another fleet file; the engines of the simulated nodes end with their process."""
        self.fleet_file.write_text(fleet_text(*faults, start_seconds=start_seconds))
        self.back("fleet", self.kill("fleet"))

    def fleet(self, *faults: dict[str, Any]) -> None:
        """Other faults of the fleet, read while it runs."""
        self.fleet_file.write_text(fleet_text(*faults))
        os.kill(self.stack.pids()["fleet"], signal.SIGHUP)

    def all_ready(self) -> None:
        """Every process of the stack runs and is ready."""
        late = {name: s["state"] for name, s in self.states().items() if s["state"] not in {"ready", "done"}}
        assert not late, late

    # The user

    def user(self, method: str, path: str, body: Any = None, key: str = "", patience: float = 30.0) -> tuple[int, Any]:
        """Ask as a patient client does: again while nobody answers, with the same idempotency key.

        `patience` is for one answer, in seconds.
        """
        headers = {"Idempotency-Key": key or f"{method}-{os.urandom(8).hex()}"}

        def ask() -> tuple[int, Any] | None:
            try:
                status, answer = self.stack.request(method, path, body, headers=headers, timeout=patience)
            except LOST:
                return None
            return None if status in _AGAIN else (status, answer)

        return eventually_sync(ask, timeout=PATIENCE, interval=0.1)

    def create(self, body: dict[str, Any]) -> None:
        """A new object, made once however often it must be asked for."""
        status, answer = self.user("POST", _place(body)[0], body)
        assert status == 201, answer

    def delete(self, body: dict[str, Any]) -> None:
        """Gone, or going; a repeat may find that it is."""
        status, answer = self.user("DELETE", _place(body)[1])
        assert status in {200, 202, 404}, answer

    def scale(self, name: str, replicas: int) -> None:
        """Another number of replicas."""
        path = f"{WORKER}/namespaces/default/modeldeployments/{name}/scale"
        status, answer = self.user("GET", path)
        assert status == 200, answer
        del answer["metadata"]["resourceVersion"]
        status, answer = self.user("PUT", path, answer | {"spec": {"replicas": replicas}})
        assert status == 200, answer

    def items(self, path: str) -> list[dict[str, Any]]:
        """A whole list."""
        status, body = self.user("GET", path)
        assert status == 200, body
        return list(body["items"])

    def pods(self, name: str) -> dict[str, dict[str, Any]]:
        """The Pods of a deployment by name."""
        found = self.items("/api/v1/namespaces/default/pods")
        mine = [pod for pod in found if pod["metadata"]["labels"].get("app.kubernetes.io/instance") == name]
        return {pod["metadata"]["name"]: pod for pod in mine}

    def chat(self, model: str) -> None:
        """One answer."""
        body = {"model": model, "messages": [{"role": "user", "content": "hello"}]}
        status, answer = self.stack.request("POST", "/v1/chat/completions", body)
        assert status == 200, answer
        assert answer["choices"][0]["message"]["content"]

    # What must hold

    def serving(self, name: str, replicas: int, timeout: float = PATIENCE) -> dict[str, dict[str, Any]]:
        """Wait until a deployment serves with exactly so many replicas, and everything agrees about it; its Pods."""
        return until(lambda: self._serving(name, replicas), timeout)

    def settled(self, name: str, replicas: int, timeout: float = PATIENCE) -> None:
        """As `serving`, beside others that are there too."""
        until(lambda: self._serving(name, replicas, alone=False), timeout)

    def _serving(self, name: str, replicas: int, *, alone: bool = True) -> dict[str, dict[str, Any]]:
        body = self.stack.get("modeldeployments", name)
        assert body, "no deployment"
        status = body["status"]
        available = condition(body, "Available")
        assert available.get("status") == "True", available
        assert status["observedGeneration"] == body["metadata"]["generation"]
        assert [(r["desired"], r["ready"]) for r in status["roles"]] == [(replicas, replicas)], status["roles"]
        pods = self.pods(name)
        assert len(pods) == replicas, sorted(pods)
        slots = Counter(pod["metadata"]["labels"]["modeldeployment.gpustack.ai/pod-ordinal"] for pod in pods.values())
        assert sorted(slots) == [str(number) for number in range(replicas)], slots
        for pod in pods.values():
            assert condition(pod, "Ready").get("status") == "True", pod["metadata"]["name"]
            assert "deletionTimestamp" not in pod["metadata"], pod["metadata"]["name"]
            assert _answers(pod), f"{pod['metadata']['name']} does not answer"
        if alone:
            self._agree(pods)
        self.chat(name)
        return pods

    def _agree(self, pods: dict[str, dict[str, Any]]) -> None:
        """Workloads, ledgers and Devices hold what these Pods use, and nothing more."""
        workloads = {body["metadata"]["name"]: body for body in self.items(f"{KUEUE}/namespaces/default/workloads")}
        assert sorted(workloads) == sorted(pods), (sorted(workloads), sorted(pods))
        used: dict[str, Counter[str]] = {}
        holders: dict[str, list[str]] = {}
        for name, pod in pods.items():
            (given,) = workloads[name]["status"]["admission"]["podSetAssignments"]
            assert given["nodeName"] == pod["spec"]["nodeName"], name
            cards = _cards(pod)
            assert sorted(given.get("devices") or ()) == cards, name
            on_node = used.setdefault(given["nodeName"], Counter())
            on_node.update(dict.fromkeys(cards, CREDITS))
            on_node.update({"cpu": given["cpuMilli"], "memory": given["memoryBytes"]})
            for card in cards:
                holders.setdefault(card, []).append(f"default/{name}")
        assert all(len(names) == 1 for names in holders.values()), holders
        for body in self.items(f"{WORKER}/devices"):
            node = body["metadata"]["name"]
            assert self.ledger(node) == used.get(node, Counter()), (node, self.ledger(node), used.get(node))
            assert not body["status"].get("orphans"), body["status"]["orphans"]
            shown = {card["id"]: card for card in cards_of(body)}
            assert {i: c["holders"] for i, c in shown.items() if c["holders"]} == {
                card: names for card, names in holders.items() if card in shown
            }, node
            assert all(c["allocated"] == CREDITS * len(c["holders"]) for c in shown.values()), shown

    def ready_reason(self, path: str, reason: str) -> None:
        """Assert why an object is not ready."""
        told = condition(self.user("GET", path)[1], "Ready")
        assert (told.get("status"), told.get("reason")) == ("False", reason), told

    def remaining(self, cards: int) -> None:
        """Wait until the pool has so many cards to give."""

        def check() -> None:
            told = self.stack.get("instancetypes", POOL, None)["status"]["accelerator"]
            assert told["remaining"] == cards, told

        until(check)

    def ledger(self, node: str) -> Counter[str]:
        """What the scheduler counts as used on a node."""
        with self.redis() as client:
            raw = client.hgetall(f"{{gpubus}}:ledger:{node}")
        fields = {name.decode(): value for name, value in raw.items()}
        return Counter(
            {
                name: int(value)
                for name, value in fields.items()
                if name not in _FIELDS and ":" not in name and int(value)
            }
        )

    def free(self, timeout: float = PATIENCE) -> None:
        """Wait until nothing is deployed, held or running."""
        until(self._free, timeout)

    def _free(self) -> bool:
        self.all_ready()
        assert not self.items(f"{WORKER}/modeldeployments")
        assert not self.items("/api/v1/pods")
        self._agree({})
        pool = self.stack.get("instancetypes", POOL, None)
        assert pool["status"]["accelerator"]["remaining"] == CARDS, pool["status"]["accelerator"]
        left = [entry.name for entry in (self.stack.dir / "pods").iterdir()]
        assert not left, left
        return True

    # What happened

    def mark(self) -> Mark:
        """Now; nothing may be deployed."""
        self.free()
        self.published()
        with self.redis() as client:
            last = client.xrevrange("{gpubus}:log", count=1)
        state = asyncio.run(self._sequences())
        return Mark(int(last[0][0].split(b"-")[0]), state, state[subjects.STREAM_DEAD_LETTERS])

    def check(self, mark: Mark, *, lost: bool = False, whole: bool = False) -> Told:
        """What happened since a mark, with everything that must hold of it whatever was killed.

        Args:
            mark: From where.
            lost: The last second of the store was lost: facts that were told of it may stand beside those of what was
                done again.
            whole: Look for repeats in all that the streams have, not only since the mark.
        """
        self.published()
        told = self.told(mark)
        if whole:
            told.ids = self.told(mark, whole=True).ids
        entries = self._log(mark.revision)
        _no_card_twice(entries)
        self._no_engine_left(entries)
        doubled = [message for message, count in told.ids.items() if count > 1]
        assert not doubled, f"published twice: {doubled}"
        if not lost:
            _once(told)
        return told

    def published(self) -> None:
        """Wait until every fact and command that was committed is acknowledged by the bus."""

        def check() -> None:
            with self.redis() as client:
                for service in subjects.SERVICES:
                    entries, acked = client.hmget(f"{{gpubus}}:outbox-account:{service}", "entries", "acked_entries")
                    assert int(entries or 0) == int(acked or 0), f"{service} has not published {entries} > {acked}"

        until(check)

    def told(self, mark: Mark, *, whole: bool = False) -> Told:
        """The facts since a mark, or (whole) all that the streams have."""
        return asyncio.run(self._told(Mark(0, {}, mark.dead) if whole else mark))

    def _log(self, revision: int) -> list[dict[str, Any]]:
        with self.redis() as client:
            page = client.xrange("{gpubus}:log", f"({revision}-0")
        return [
            {
                "kind": values[b"kind"].decode(), "type": values[b"type"].decode(), "uid": values[b"uid"].decode(),
                "name": values[b"name"].decode(), "body": orjson.loads(values[b"body"]) if values.get(b"body") else {},
            }
            for _, values in page
        ]  # fmt: skip

    def _no_engine_left(self, entries: list[dict[str, Any]]) -> None:
        """Of all Pods that ever were, only those that still are have an engine."""
        now = {pod["metadata"]["uid"] for pod in self.items("/api/v1/pods")}
        seen = {e["uid"]: e["body"] for e in entries if e["kind"] == "Pod"}
        for uid, body in seen.items():
            if uid in now:
                continue
            assert not engines(uid), f"an engine of {body['metadata']['name']} still runs"
            assert not _answers(body), f"{body['metadata']['name']} still answers"

    async def _sequences(self) -> dict[str, int]:
        async with self.nats() as client:
            manager = client.jsm()
            found = await manager.streams_info()
        return {str(info.config.name): info.state.last_seq for info in found}

    async def _told(self, mark: Mark) -> Told:
        told = Told()
        async with self.nats() as client:
            manager = client.jsm()
            for info in await manager.streams_info():
                name, state = str(info.config.name), info.state
                if name == subjects.STREAM_DEAD_LETTERS and state.last_seq > mark.dead:
                    letter = await manager.get_msg(name, seq=state.last_seq)
                    raise AssertionError(f"a dead letter: {letter.subject} {(letter.data or b'')[:600]!r}")
                if name in {subjects.STREAM_COMMANDS, subjects.STREAM_REPORTS, subjects.STREAM_DEAD_LETTERS}:
                    continue
                first = max(mark.sequences.get(name, 0), state.first_seq - 1) + 1
                if state.last_seq < mark.sequences.get(name, 0):
                    first = max(1, state.first_seq)  # it was replaced by an older or an empty one
                for number in range(first, state.last_seq + 1):
                    message = await manager.get_msg(name, seq=number)
                    told.ids[f"{name} {(message.headers or {})['Nats-Msg-Id']}"] += 1
                    told.facts.append(orjson.loads(message.data or b"{}"))
        return told

    # Servers

    @contextmanager
    def redis(self) -> Iterator[Any]:
        """The store as the administrator sees it."""
        port = json.loads((self.stack.dir / "ports.json").read_text())["redis"]
        secret = (self.stack.dir / "run" / "redis" / "admin.password").read_text().strip()
        client = redis.Redis("127.0.0.1", port, username="admin", password=secret)
        try:
            yield client
        finally:
            client.close()

    def nats(self) -> _Nats:
        """The bus as the administrator sees it."""
        env = self.stack.exports()
        return _Nats(env["NATS_URL"], env["NATS_NKEY"])


class _Nats:
    def __init__(self, url: str, seed: str) -> None:
        self._url, self._seed = url, seed
        self._client: Any = None

    async def __aenter__(self) -> Any:
        self._client = await nats.connect(
            self._url, nkeys_seed=self._seed, inbox_prefix="_INBOX_admin", allow_reconnect=False, connect_timeout=5
        )
        return self._client

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()


def until(look: Callable[[], T], timeout: float = PATIENCE) -> T:
    """Look again and again until everything that `look` asserts holds; what did not hold last is raised."""
    deadline = time.monotonic() + timeout
    while True:
        try:
            return look()
        except (AssertionError, redis.RedisError, KeyError, TypeError, *LOST):
            if time.monotonic() > deadline:
                raise
        time.sleep(0.05)


def _place(body: dict[str, Any]) -> tuple[str, str]:
    metadata = body["metadata"]
    root = f"{WORKER}/namespaces/{metadata['namespace']}/{_OWN[body['kind']]}"
    return root, f"{root}/{metadata['name']}"


def cards_of(devices: dict[str, Any]) -> list[dict[str, Any]]:
    """Every card of one node, as its status has it."""
    groups = (devices.get("status") or {}).get("groups") or ()
    return [card for group in groups for card in group["accelerators"]]


def _cards(pod: dict[str, Any]) -> list[str]:
    found = pod["metadata"].get("annotations", {}).get("device.gpustack.ai/accelerator.allocated", "")
    return sorted(filter(None, re.split(r"[,;]", found)))


def _answers(pod: dict[str, Any]) -> bool:
    """Whether the engine of this very Pod answers at its endpoint."""
    place = (pod.get("status") or {}).get("endpoint") or {}
    if not place.get("port"):
        return False
    url = f"http://{place['address']}:{place['port']}{place.get('path') or ''}/health"
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.headers.get("x-gpubus-replica", place["token"]) == place["token"])
    except (OSError, http.client.HTTPException):
        return False


def engines(uid: str) -> list[int]:
    """Pids of a Pod's engine on this host."""
    wanted = f"GPUBUS_POD_UID={uid}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        try:
            mine = entry.name.isdigit() and wanted in (entry / "environ").read_bytes().split(b"\0")
            if mine and b"shim.py" not in (entry / "cmdline").read_bytes() and alive(int(entry.name)):
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def _no_card_twice(entries: list[dict[str, Any]]) -> None:
    """At no revision did two Workloads have the same card, or one card two holders."""
    holding: dict[str, tuple[str, frozenset[str]]] = {}
    for entry in entries:
        body = entry["body"]
        if entry["kind"] == "Devices":
            for card in cards_of(body):
                assert len(card["holders"]) <= 1, f"{card['id']} is held by {card['holders']}"
        if entry["kind"] != "Workload":
            continue
        gone = entry["type"] == "DELETED" or condition(body, "Finished").get("status") == "True"
        given = ((body.get("status") or {}).get("admission") or {}).get("podSetAssignments") or ()
        cards = frozenset() if gone else frozenset(card for one in given for card in one.get("devices") or ())
        for uid, (name, others) in holding.items():
            assert uid == entry["uid"] or not cards & others, f"{entry['name']} got {cards & others} of {name}"
        holding[entry["uid"]] = (entry["name"], cards)


def _once(told: Told) -> None:
    """Each fact of the journey took effect once."""

    def count(what: str, *about: str) -> Counter[tuple[Any, ...]]:
        return Counter(tuple(data.get(key) for key in about) for data in told.of(what))

    single = {
        "deployment.applied": ("uid", "generation"), "deployment.removed": ("uid",), "workload.queued": ("uid",),
        "workload.admitted": ("uid",), "workload.cancelled": ("uid",), "workload.finished": ("uid",),
        "replica.stopped": ("uid",), "artifact.resolved": ("uid",), "artifact.ready": ("uid", "node"),
        "object-deployer.applied": ("uid", "generation"), "object-modelstore.applied": ("uid", "generation"),
        "object-deployer.removed": ("uid",), "object-modelstore.removed": ("uid",),
        "object-gateway.applied": ("uid",), "object-gateway.removed": ("uid",), "object-kvcache.removed": ("uid",),
    }  # fmt: skip
    for what, about in single.items():
        repeated = {key: number for key, number in count(what, *about).items() if number > 1}
        assert not repeated, f"{what} more than once: {repeated}"
    ends = count("replica.unready", "uid") + count("replica.failed", "uid")
    for what in ("replica.ready", "replica.started"):
        for key, number in count(what, "uid").items():
            assert number <= 1 + ends[key], f"{what} of {key}: {number}, with {ends[key]} interruptions"
    degraded = count("deployment.degraded", "uid")
    scaled = count("deployment.applied", "uid")
    for key, number in count("deployment.available", "uid").items():
        assert number <= degraded[key] + max(1, scaled[key]), f"deployment.available of {key}: {number}"
    admitted = Counter(card for data in told.of("workload.admitted") for card in data["devices"])
    # A report that was late may show what has been given back meanwhile: an orphan, until the next report.
    given_back = [data for data in told.of("capacity.freed") if data["reason"] not in {"NodeReported", "OrphanStopped"}]
    freed = Counter(card for data in given_back for card in data["devices"])
    assert admitted == freed, (admitted, freed)
