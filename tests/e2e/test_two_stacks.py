"""Two whole stacks on one host: neither sees the other, and one goes with its running Pods while the other goes on."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shared.bus.client import BusClient
from shared.errors import Unavailable
from tests.e2e.conftest import started
from tests.e2e.story import available, deployment, items, path_of
from tests.support.stack import Stack, alive, condition
from tests.support.wait import eventually_sync

pytestmark = pytest.mark.timeout(120)
CPU_POOL = "gpustack--generic-linux-amd64"
SERVE = (
    "import http.server as h, sys; "
    "h.HTTPServer(('127.0.0.1', int(sys.argv[1])), h.SimpleHTTPRequestHandler).serve_forever()"
)


def pod_of(stack: Stack, name: str) -> dict[str, Any]:
    """The deployment's one Pod, once its process answers."""

    def look() -> dict[str, Any] | None:
        found = items(stack, "/api/v1/namespaces/default/pods")
        ready = [pod for pod in found if condition(pod, "Ready").get("status") == "True"]
        return next((pod for pod in ready if pod["metadata"]["name"] == f"{name}-server-r0"), None)

    return eventually_sync(look, timeout=60, interval=0.1)


def engine_of(stack: Stack, pod: dict[str, Any]) -> int:
    """The pid of a Pod's process on this host."""
    return int(json.loads((stack.dir / "pods" / pod["metadata"]["uid"] / "engine.json").read_text())["pid"])


@pytest.fixture
def second(tmp_path: Path) -> Iterator[Stack]:
    """A stack of one's own to take down."""
    yield from started(tmp_path / "second")


def custom(name: str, port: str = "$(GPUBUS_PORT)") -> dict[str, Any]:
    """A real process on this host that answers HTTP, on the port it is given unless it insists on one."""
    body = deployment(name, "default")
    body["spec"]["engine"] = {"name": "Custom"}
    body["spec"]["roles"][0] |= {
        "instanceType": CPU_POOL, "resources": {"accelerator": 0, "cpu": "1", "ram": "256Mi"},
        "command": ["python3", "-c", SERVE, port],
    }  # fmt: skip
    return body


def test_two_stacks_know_nothing_of_each_other_and_one_goes_alone(stack: Stack, second: Stack):
    ports = [set(json.loads((one.dir / "ports.json").read_text()).values()) for one in (stack, second)]
    assert not ports[0] & ports[1]
    body = custom("same-name")
    for one in (stack, second):
        status, answer = one.request("POST", path_of(body)[0], body)
        assert status == 201, answer
    pods = [pod_of(one, "same-name") for one in (stack, second)]
    assert pods[0]["metadata"]["uid"] != pods[1]["metadata"]["uid"]
    assert pods[0]["status"]["endpoint"]["port"] != pods[1]["status"]["endpoint"]["port"]
    assert len(items(stack, "/api/v1/nodes")) == 3
    assert len(items(second, "/api/v1/nodes")) == 1

    strangers_are_refused(stack, second)
    pids, engines = stack.pids(), [engine_of(one, pod) for one, pod in zip((stack, second), pods, strict=True)]
    assert all(alive(pid) for pid in engines)

    second.down()

    eventually_sync(lambda: not alive(engines[1]), timeout=30)
    assert alive(engines[0])
    assert stack.pids() == pids
    assert all(alive(pid) for pid in pids.values())
    assert condition(available(stack, "same-name", "default"), "Available")["status"] == "True"
    status, answer = stack.request("DELETE", path_of(body)[1])
    assert status == 200, answer
    eventually_sync(lambda: not alive(engines[0]), timeout=60)
    eventually_sync(lambda: not items(stack, "/api/v1/namespaces/default/pods"), timeout=60)


def strangers_are_refused(stack: Stack, second: Stack) -> None:
    """One stack's token and seed open nothing of the other."""
    status, answer = second.request("GET", "/api/v1/pods", token=stack.exports()["GPUBUS_TOKEN"])
    assert (status, answer["reason"]) == (401, "Unauthorized")

    async def opens(key: Stack) -> bool:
        url, seed = second.exports()["NATS_URL"], key.exports()["NATS_CREDS"]
        client = await BusClient.connect(url=url, user="admin", seed_file=seed, timeout=5)
        await client.close()
        return True

    assert asyncio.run(opens(second))
    with pytest.raises(Unavailable):
        asyncio.run(opens(stack))


def test_a_second_up_in_a_running_stacks_data_dir_is_refused_in_one_sentence_and_changes_nothing(stack: Stack):
    before = {name: (stack.dir / name).read_bytes() for name in ("pids.json", "ports.json", "env", "run/plan.json")}

    told = stack.gpubus("up", "--detach", "--data-dir", str(stack.dir), "--port", "0", check=False)

    assert told.returncode == 1
    assert told.stderr.count("\n") == 1
    assert f"belongs to a running stack (supervisor pid {stack.pids()['supervisor']})" in told.stderr
    assert f"gpubus down --data-dir {stack.dir}" in told.stderr
    assert {name: (stack.dir / name).read_bytes() for name in before} == before


def test_a_port_that_another_process_has_is_waited_for_and_its_answers_are_not_the_pods(stack: Stack):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        body = custom("insists", str(port))
        body["spec"]["roles"][0]["ports"] = [{"port": port}]
        status, answer = stack.request("POST", path_of(body)[0], body)
        assert status == 201, answer

        def waiting() -> str:
            pod = stack.get("pods", "insists-server-r0", group="v1") or {}
            states = (pod.get("status") or {}).get("containerStatuses") or [{}]
            return (states[0].get("state") or {}).get("waiting", {}).get("message", "")

        told = eventually_sync(waiting, timeout=30, interval=0.1)
        assert f"port {port}" in told
        assert condition(stack.get("modeldeployments", "insists"), "Available")["status"] == "False"
    pod_of(stack, "insists")
    assert stack.request("DELETE", path_of(body)[1])[0] == 200
    eventually_sync(lambda: not items(stack, "/api/v1/namespaces/default/pods"), timeout=60)
