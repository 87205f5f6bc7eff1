"""A clean store and bus, the deployer and its agents as child processes, and the services around them played by the test.

Read next: test_journey.py.
"""

from __future__ import annotations

import asyncio
import functools
import json
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httptools
import pytest

from services.deployer.agent.pods import PodAgent
from services.deployer.drivers.engine_http import HttpProber
from services.deployer.drivers.host import machine_id
from services.deployer.drivers.pod_folder import PodFolder
from services.deployer.drivers.simulated import SimulatedRuntime
from services.deployer.drivers.simulated_server import SimulatedHost
from shared.bus.broker import RouterRunner
from shared.bus.client import BusClient
from shared.bus.context import MessageContext
from shared.bus.relay import Relay
from shared.bus.router import Router, command
from shared.bus.streams import migrate
from shared.clock import SystemClock
from shared.commands.objects import WriteAnswer, WriteObject
from shared.commands.workload import CancelWorkload, SubmitWorkload
from shared.errors import Raced, Transient
from shared.events import deployment as d
from shared.events.artifact import ArtifactReady, ArtifactResolved
from shared.events.device import NodeJoined, NodeLost, NodeRemoved, NodeReturned
from shared.events.objects import GatewayObjectApplied, GatewayObjectRemoved, ModelstoreObjectApplied
from shared.events.pool import PoolFormed
from shared.events.workload import (
    WorkloadAdmitted,
    WorkloadCancelled,
    WorkloadFinished,
    WorkloadHeld,
    WorkloadPreempted,
)
from shared.manifest import ManifestFile, build
from shared.messages.base import Fact
from shared.queries import ReadLog
from shared.resources.base import get_condition
from shared.resources.core import Pod
from shared.resources.deployment import ModelDeployment
from shared.resources.kinds import KINDS
from shared.store import keys
from shared.store.client import Store
from shared.store.documents import ANY, Commit, Delete, Document, Put
from tests.support import wait
from tests.support.children import Child
from tests.support.outbox import published
from tests.support.servers import NatsServer, RedisServer

CPU_POOL = "gpustack--generic-linux-amd64"
FACTS: tuple[type[Fact], ...] = (
    d.DeploymentApplied, d.DeploymentAvailable, d.DeploymentDegraded, d.DeploymentRemoved, d.ReplicaStarted,
    d.ReplicaReady, d.ReplicaUnready, d.ReplicaFailed, d.ReplicaStopped, d.PodStarted, d.PodReady, d.PodFailed,
    d.PodFinished, d.PodStopped,
)  # fmt: skip
eventually = functools.partial(wait.eventually, timeout=30)
"""Patient: other tests may have the cores."""
PINGS = 'ping_interval: "1s"\nping_max: 2'


class Scheduler:
    """Admits everything to one of its nodes, or holds it; gives back what is cancelled."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.nodes = ["n1"]
        self.hold = ""
        self.submitted: list[str] = []
        self.cancelled: list[str] = []
        self.taken_back: set[str] = set()

    @command(SubmitWorkload)
    async def submit_workload(self, order: SubmitWorkload, ctx: MessageContext) -> None:
        stored = await self.store.get("Workload", order.namespace, order.name)
        if order.uid in self.taken_back or (stored is not None and stored.uid == order.uid):
            return
        assert stored is None, f"{order.name} is taken"
        self.submitted.append(order.name)
        owner = {"kind": order.owner_kind, "name": order.owner_name, "uid": order.owner_uid, "controller": True}
        body = {
            "apiVersion": KINDS["Workload"].api_version, "kind": "Workload",
            "metadata": {
                "name": order.name, "namespace": order.namespace, "uid": order.uid, "labels": order.labels,
                "ownerReferences": [owner], "finalizers": ["x/y"],
            },
            "spec": order.spec,
        }  # fmt: skip
        await self._put(body, None, order)

    @command(CancelWorkload)
    async def cancel_workload(self, order: CancelWorkload, ctx: MessageContext) -> None:
        self.taken_back.add(order.uid)
        stored = await self.store.get("Workload", order.namespace, order.name)
        if stored is None or stored.uid != order.uid:
            return
        self.cancelled.append(order.name)
        about = _about(stored.body)
        key = ("Workload", order.namespace, order.name)
        if order.outcome == "Cancelled":
            await self.store.commit(
                Commit(deletes=(Delete(*key, stored.revision),), facts=(WorkloadCancelled(**about),))
            )
            return
        body = _with_condition(stored.body, "Finished", "True", order.outcome, "")
        await self.store.commit(Commit(puts=(Put(*key, body, stored.revision),), facts=(WorkloadFinished(**about),)))

    async def admit(self) -> None:
        """Everything that waits."""
        self.hold = ""
        for document in (await self.store.snapshot(["Workload"])).documents:
            if not (document.body.get("status") or {}).get("admission"):
                await self._put(document.body, document.revision)

    async def evict(self, name: str, namespace: str = "default") -> None:
        found = await self.store.get("Workload", namespace, name)
        body = _with_condition(found.body, "Evicted", "True", "Preempted", "for another")
        fact = WorkloadPreempted(**_about(found.body))
        await self.store.commit(Commit(puts=(Put("Workload", namespace, name, body, found.revision),), facts=(fact,)))

    async def _put(self, body: dict[str, Any], expect: int | None, order: SubmitWorkload | None = None) -> None:
        about = _about(body)
        if self.hold:
            body = _with_condition(body, "QuotaReserved", "False", "NoCapacity", self.hold)
            fact: Fact = WorkloadHeld(**about, reason="NoCapacity", message=self.hold)
        else:
            node = self.nodes[len(self.submitted) % len(self.nodes)]
            assignment = {
                "name": "main", "nodeName": node, "pool": CPU_POOL, "devices": [], "cpuMilli": 1000,
                "memoryBytes": 1 << 30,
            }  # fmt: skip
            body = _with_condition(body, "QuotaReserved", "True", "Admitted", "")
            body["status"]["admission"] = {"clusterQueue": CPU_POOL, "podSetAssignments": [assignment]}
            fact = WorkloadAdmitted(**about, node=node)
        key = (body["metadata"]["namespace"], body["metadata"]["name"])
        await self.store.commit(Commit(puts=(Put("Workload", *key, body, expect),), facts=(fact,)))


def _about(body: dict[str, Any]) -> dict[str, Any]:
    metadata, owner = body["metadata"], body["metadata"]["ownerReferences"][0]
    return {
        "namespace": metadata["namespace"], "name": metadata["name"], "uid": metadata["uid"],
        "owner_kind": owner["kind"], "owner_name": owner["name"], "owner_uid": owner["uid"],
    }  # fmt: skip


def _with_condition(body: dict[str, Any], kind: str, status: str, reason: str, message: str) -> dict[str, Any]:
    old = body.get("status") or {}
    others = [c for c in old.get("conditions") or () if c["type"] != kind]
    told = {"type": kind, "status": status, "reason": reason, "message": message}
    return {**body, "status": {**old, "conditions": [*others, told]}}


class House:
    """Everything a test touches."""

    redis: RedisServer
    nats: NatsServer

    def __init__(self, stores: dict[str, Store], bus: BusClient, directory: Path, settings: dict[str, str]) -> None:
        self.stores, self.bus, self.directory, self.settings = stores, bus, directory, settings
        self.store = stores["gateway"]
        self.scheduler = Scheduler(stores["scheduler"])
        self.facts: list[Fact] = []
        self.children: list[Child] = []
        self.tasks: list[asyncio.Task[Any]] = []
        self.hosts: list[SimulatedHost] = []
        self.runtimes: dict[str, SimulatedRuntime] = {}
        self.agents: dict[str, PodAgent] = {}
        self.agent_tasks: dict[str, asyncio.Task[None]] = {}

    # Processes

    def controller(self, name: str = "deployer", **settings: str) -> Child:
        return self._child(name, ("services.deployer",), settings)

    async def control(self, name: str = "deployer", **settings: str) -> Child:
        """A controller that is ready; the test's own connections go on meanwhile."""
        child = self.controller(name, **settings).start()
        await asyncio.to_thread(child.ready)
        return child

    def agent(self, node: str = "n1", **settings: str) -> Child:
        """The agent of a host; its Pods are real processes."""
        data = {"GPUBUS_NODE": node, "GPUBUS_DATA_DIR": str(self.data_dir(node))}
        return self._child(f"agent-{node}", ("services.deployer", "agent"), data | settings)

    async def simulated(self, *names: str, start_seconds: float = 0.0) -> None:
        """Agents of made-up nodes, in this process."""
        host = SimulatedHost()
        await host.start()
        self.hosts.append(host)
        clock = SystemClock()
        for name in names:
            runtime = self.runtimes[name] = SimulatedRuntime(host, clock=clock, start_seconds=start_seconds)
            agent = PodAgent(
                node=name, bus=self.bus, runtime=runtime, prober=HttpProber(), clock=clock, machine_id=f"sim-{name}"
            )
            self.agents[name] = agent
            self.hear(name)
            await self.node(name, machine=f"sim-{name}", labels={"gpubus.io/simulated": "true"})

    def hear(self, name: str) -> None:
        """The agent of a made-up node works (again)."""
        self.agent_tasks[name] = asyncio.ensure_future(self.agents[name].run())
        self.tasks.append(self.agent_tasks[name])

    async def silence(self, name: str) -> None:
        """Nothing is heard of a made-up node any more; what it plays goes on."""
        self.agent_tasks[name].cancel()
        await asyncio.gather(self.agent_tasks[name], return_exceptions=True)

    def data_dir(self, node: str = "n1") -> Path:
        path = self.directory / "data" / node
        path.mkdir(parents=True, exist_ok=True)
        return path

    def folder(self, pod: Pod, node: str = "n1") -> PodFolder:
        return PodFolder.of(self.data_dir(node) / "pods", pod.uid)

    def engines(self, pod: Pod) -> list[int]:
        """Pids of a Pod's engine."""
        wanted = f"GPUBUS_POD_UID={pod.uid}\0".encode()
        found = []
        for entry in Path("/proc").iterdir():
            try:
                if (
                    entry.name.isdigit()
                    and wanted in (entry / "environ").read_bytes()
                    and b"shim.py" not in (entry / "cmdline").read_bytes()
                ):
                    found.append(int(entry.name))
            except OSError:
                continue
        return found

    # The world

    async def commit(self, service: str, commit: Commit) -> None:
        for _ in range(30):
            try:
                await self.stores[service].commit(commit)
            except Raced:
                raise
            except Transient:
                await asyncio.sleep(0.1)
            else:
                return
        raise AssertionError("the store does not come back")

    async def namespace(self, name: str) -> None:
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        fact = GatewayObjectApplied(kind="Namespace", name=name, uid=name)
        await self.commit("gateway", Commit(puts=(Put("Namespace", "", name, body, None),), facts=(fact,)))

    async def remove_namespace(self, name: str) -> None:
        found = await self.store.get("Namespace", "", name)
        body = {**found.body, "metadata": {**found.body["metadata"], "deletionTimestamp": "2026-11-30T12:00:00Z"}}
        fact = GatewayObjectRemoved(kind="Namespace", name=name, uid=found.uid)
        await self.commit("gateway", Commit(puts=(Put("Namespace", "", name, body, found.revision),), facts=(fact,)))

    async def pool(self, name: str = CPU_POOL) -> None:
        spec = {"os": "linux", "arch": "amd64", "unitResources": {"cpu": "1", "ram": "2Gi"}}
        body = {"apiVersion": KINDS["InstanceType"].api_version, "kind": "InstanceType", "metadata": {"name": name}}
        put = Put("InstanceType", "", name, {**body, "spec": spec}, None)
        await self.commit("scheduler", Commit(puts=(put,), facts=(PoolFormed(name=name),)))

    async def node(self, name: str = "n1", *, machine: str = "", labels: dict[str, str] | None = None) -> None:
        info = {"machineId": machine or machine_id()}
        body = {
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "uid": f"node-{name}", "labels": labels or {}},
            "status": {"nodeInfo": info, "conditions": [{"type": "Ready", "status": "True", "reason": "AgentReports"}]},
        }  # fmt: skip
        await self.commit("discovery", Commit(puts=(Put("Node", "", name, body, ANY),), facts=(NodeJoined(name=name),)))

    async def lose(self, name: str) -> None:
        await self._node_is(name, "Unknown", "NodeSilent", NodeLost(name=name))

    async def find(self, name: str) -> None:
        await self._node_is(name, "True", "AgentReports", NodeReturned(name=name))

    async def remove_node(self, name: str) -> None:
        await self.commit("discovery", Commit(deletes=(Delete("Node", "", name),), facts=(NodeRemoved(name=name),)))

    async def _node_is(self, name: str, status: str, reason: str, fact: Fact) -> None:
        found = await self.store.get("Node", "", name)
        body = _with_condition(found.body, "Ready", status, reason, "")
        await self.commit("discovery", Commit(puts=(Put("Node", "", name, body, found.revision),), facts=(fact,)))

    async def artifact(self, name: str, *paths: str, resolved: bool = True) -> str:
        """A ModelArtifact, resolved to files of made-up content; its digest."""
        manifest = build(ManifestFile(path, 1, "sha256", "0" * 64) for path in paths)
        found = {"revision": "c" * 40, "manifestDigest": manifest.digest}
        body = {
            "apiVersion": KINDS["ModelArtifact"].api_version, "kind": "ModelArtifact",
            "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
            "spec": {"source": {"huggingFace": {"repository": "o/n"}}}, "status": {"resolved": found} if resolved else {},
        }  # fmt: skip
        about = {"namespace": "default", "name": name, "uid": f"uid-{name}"}
        await self.stores["modelstore"].write_blob(keys.manifest(manifest.digest), manifest.text)
        facts: list[Fact] = [ModelstoreObjectApplied(kind="ModelArtifact", **about)]
        facts += [ArtifactResolved(**about, digest=manifest.digest)] if resolved else []
        await self.commit("modelstore", Commit(puts=(Put("ModelArtifact", "default", name, body, ANY),), facts=facts))
        return manifest.digest

    async def deliver(self, name: str, digest: str, node: str, path: Path, state: str = "Ready") -> None:
        """The node's model agent has the weights."""
        model = {"digest": digest, "state": state, "path": str(path) if state == "Ready" else ""}
        body = {
            "apiVersion": KINDS["NodeModelStore"].api_version, "kind": "NodeModelStore", "metadata": {"name": node, "uid": f"store-{node}"},
            "status": {"models": [model]},
        }  # fmt: skip
        fact = ArtifactReady(
            namespace="default", name=name, uid=f"uid-{name}", digest=digest, node=node, path=str(path)
        )
        facts = (fact,) if state == "Ready" else ()
        await self.commit("modelstore", Commit(puts=(Put("NodeModelStore", "", node, body, ANY),), facts=facts))

    # Users

    async def write(
        self, verb: str, kind: str, name: str, body: Any = None, namespace: str = "default", **more: Any
    ) -> WriteAnswer:
        if body is not None:
            metadata = {"name": name, "namespace": namespace, **body.pop("metadata", {})}
            body = {"apiVersion": KINDS[kind].api_version, "kind": kind, "metadata": metadata, **body}
        request = WriteObject(verb=verb, kind=kind, namespace=namespace, name=name, object=body, **more)
        await eventually(lambda: self.bus.connected, timeout=20)
        return await self.bus.write("deployer", request, timeout=10)

    async def deploy(self, name: str = "m", namespace: str = "default", **fields: Any) -> WriteAnswer:
        """A deployment of one role; `role` has more of the role's fields."""
        role = {
            "name": "server",
            "instanceType": CPU_POOL,
            "resources": {"cpu": "1", "ram": "1Gi"},
            **fields.pop("role", {}),
        }
        spec = {"model": {"name": name}, "engine": {"name": "Simulated"}, "roles": [role], **fields}
        return await self.write("create", "ModelDeployment", name, {"spec": spec}, namespace)

    async def edit(self, name: str = "m", **role: Any) -> WriteAnswer:
        """Change fields of the first role."""
        found = await self.store.get("ModelDeployment", "default", name)
        spec = json.loads(json.dumps(found.body["spec"]))
        spec["roles"][0] |= role
        answer = await self.write(
            "replace",
            "ModelDeployment",
            name,
            {"spec": spec, "metadata": {**found.body["metadata"], "resourceVersion": ""}},  # whatever its status became
        )
        assert answer.error is None, answer.error
        return answer

    async def delete(self, kind: str, name: str, namespace: str = "default") -> WriteAnswer:
        return await self.write("delete", kind, name, namespace=namespace)

    async def log(self, pod: Pod, node: str = "n1", **query: Any) -> str:
        answer = await self.bus.ask(ReadLog(node=node, uid=pod.uid, **query), timeout=5)
        return answer.text

    # What is

    async def deployment(self, name: str = "m", namespace: str = "default") -> ModelDeployment | None:
        found = await self.store.get("ModelDeployment", namespace, name)
        return found.read(ModelDeployment) if found is not None else None

    async def pods(self, namespace: str = "default") -> dict[str, Pod]:
        taken = await self.store.snapshot(["Pod"])
        return {document.name: document.read(Pod) for document in taken.documents if document.namespace == namespace}

    async def pod(self, name: str) -> Pod | None:
        return (await self.pods()).get(name)

    async def workloads(self) -> dict[str, Document]:
        return {document.name: document for document in (await self.store.snapshot(["Workload"])).documents}

    async def told(self, kind: str, name: str = "m") -> tuple[str, str, str]:
        found = await self.deployment(name)
        condition = get_condition(found.status.conditions, kind) if found is not None else None
        return (condition.status, condition.reason, condition.message) if condition is not None else ("", "", "")

    async def available(self, name: str = "m", count: int | None = None, timeout: float = 40) -> dict[str, Pod]:
        """Wait until every wanted replica is ready; the ready Pods."""

        async def check() -> dict[str, Pod] | None:
            found = await self.deployment(name)
            current = found is not None and (await self.told("Available", name))[0] == "True"
            if not current or found.status.observed_generation != found.metadata.generation:
                return None
            pods = {n: p for n, p in (await self.pods()).items() if is_ready(p)}
            return pods if count is None or len(pods) == count else None

        return await eventually(check, timeout=timeout)

    async def gone(self, kind: str, name: str, namespace: str = "default", timeout: float = 40) -> None:
        async def check() -> bool:
            return await self.store.get(kind, namespace, name) is None

        await eventually(check, timeout=timeout)

    async def all_heard(self) -> None:
        """Return when every fact that the deployer committed has been heard here."""
        await published(self.stores["deployer"])
        await self.bus.connection.flush()

    def heard(self, cls: type[Fact], **about: Any) -> list[Any]:
        return [f for f in self.facts if isinstance(f, cls) and all(getattr(f, k) == v for k, v in about.items())]

    def _child(self, name: str, words: tuple[str, ...], settings: dict[str, str]) -> Child:
        child = Child(self.directory, name, words, self.settings | settings)
        self.children.append(child)
        return child


def is_ready(pod: Pod) -> bool:
    told = get_condition(pod.status.conditions, "Ready")
    return told is not None and told.status == "True" and not pod.deleting


async def started(house, **settings):
    """A controller, a pool, a host with its agent, and one replica that is ready."""
    await house.control(**settings)
    await house.pool()
    await house.node()
    agent = house.agent().start()
    await house.deploy()
    return agent, (await house.available())["m-server-r0"]


async def retried(call, *well: str):
    """Call until it is answered without an error, or with one of these."""
    for _ in range(100):
        try:
            answer = await call()
        except Exception:
            await asyncio.sleep(0.1)
            continue
        if answer.error is None or answer.error["code"] in well:
            return
        await asyncio.sleep(0.1)
    raise AssertionError("never answered")


async def names_are(house, wanted):
    """Whether these are all Pods and all Workloads."""
    return sorted(await house.pods()) == wanted and sorted(await house.workloads()) == wanted


async def get(pod: Pod, path: str) -> tuple[int, dict[str, str], bytes]:
    """GET from a Pod's endpoint."""
    return await _http(pod, "GET", path, b"")


async def post(pod: Pod, path: str, body: Any) -> tuple[int, dict[str, str], bytes]:
    return await _http(pod, "POST", path, json.dumps(body).encode())


async def _http(pod: Pod, method: str, path: str, body: bytes) -> tuple[int, dict[str, str], bytes]:
    at = pod.status.endpoint
    reader, writer = await asyncio.open_connection(at.address, at.port)
    head = f"{method} {at.path}{path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    data = await reader.read()
    writer.close()
    await writer.wait_closed()
    answer = _Answer()
    parser = httptools.HttpResponseParser(answer)
    answer.parser = parser
    parser.feed_data(data)
    return parser.get_status_code(), answer.headers, answer.body


class _Answer:
    parser: Any

    def __init__(self) -> None:
        self.headers: dict[str, str] = {}
        self.body = b""

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.decode().lower()] = value.decode()

    def on_body(self, data: bytes) -> None:
        self.body += data


async def _over(tasks: list[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    _, deaf = await asyncio.wait(tasks, timeout=30)
    for task in deaf:
        task.print_stack()
    assert not deaf, "a task that was told to end goes on"
    await asyncio.gather(*tasks, return_exceptions=True)


async def _kept_running(relay: Relay) -> None:
    while True:
        try:
            await relay.run()
        except Transient:
            await asyncio.sleep(0.2)


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    redis, nats = RedisServer(), NatsServer(PINGS)
    redis.start()
    nats.start()
    await migrate(nats.url)
    clock = SystemClock()
    stores = {
        service: await Store.connect(url=redis.url, service=service, instance="test", clock=clock)
        for service in ("scheduler", "discovery", "modelstore", "gateway", "deployer")
    }
    bus = await BusClient.connect(url=nats.url, user="test")
    settings = {"GPUBUS_NATS_URL": nats.url, "GPUBUS_REDIS_URL": redis.url, "GPUBUS_DATA_DIR": str(tmp_path)}
    house = House(stores, bus, tmp_path, settings)
    house.redis, house.nats = redis, nats
    for cls in FACTS:
        await bus.on_fact(cls, lambda fact, _revision: house.facts.append(fact))
    for service, store in stores.items():
        if service == "deployer":
            continue  # relays for itself
        relay_bus = bus if service != "scheduler" else await BusClient.connect(url=nats.url, user="scheduler")
        house.tasks.append(asyncio.ensure_future(_kept_running(Relay(store, relay_bus, clock))))
        if service == "scheduler":
            scheduler_bus = relay_bus
    router = Router("scheduler")
    router.include(house.scheduler)
    runner = RouterRunner(scheduler_bus, router, clock, 2.0)
    await runner.start()
    await house.namespace("default")
    yield house
    async with asyncio.timeout(30):
        await runner.stop()
    for child in house.children:
        await asyncio.to_thread(child.kill)
    await asyncio.to_thread(_end_pods, tmp_path)
    await _over(house.tasks)
    for host in house.hosts:
        await host.close()
    await bus.close()
    await scheduler_bus.close()
    for store in stores.values():
        await store.close()
    nats.close()
    redis.close()


def _end_pods(directory: Path) -> None:
    for folder in directory.glob("data/*/pods/*"):
        pods = PodFolder(folder)
        for _ in range(20):
            for pid in pods.holders():
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            if not pods.held():
                break


def pytest_collection_modifyitems(items):
    for item in items:
        if "integration/deployer" in str(item.path):
            item.add_marker(pytest.mark.timeout(180))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    report = outcome.get_result()
    house = getattr(item, "funcargs", {}).get("house")
    if report.when == "call" and report.failed and isinstance(house, House):
        for child in house.children:
            text = child.log_path.read_text(errors="replace") if child.log_path.exists() else ""
            report.sections.append((f"log of {child.name}", text[-8000:]))
