"""Bad input at every door of a whole stack: a clear error or a dead letter, nothing stored, everybody goes on."""

from __future__ import annotations

import asyncio
import http.client
import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.e2e.story import WORKER, connect, deployment, log_lines, path_of
from tests.support.stack import Stack, alive
from tests.support.wait import eventually_sync

pytestmark = pytest.mark.timeout(120)
DEPLOYMENTS = f"{WORKER}/namespaces/default/modeldeployments"
KINDS = (
    "/api/v1/namespaces", "/api/v1/configmaps", "/api/v1/secrets", "/api/v1/pods", "/api/v1/nodes",
    f"{WORKER}/modeldeployments", f"{WORKER}/modelartifacts", f"{WORKER}/kvcachebackends", f"{WORKER}/instances",
    f"{WORKER}/devices", f"{WORKER}/instancetypes", "/apis/kueue.x-k8s.io/v1beta2/workloads", "/apis/gpubus.io/v1/apikeys",
)  # fmt: skip
APPLY = "gpubus.req.gateway.apply.v1.admin.default"
STORED = "gpubus.cmd.gateway.apply.v1.admin.default"


def store(stack: Stack) -> dict[str, str]:
    """The revision of every object, by kind, namespace, name; without what heartbeats change."""
    found = {}
    for path in KINDS:
        status, body = stack.request("GET", path)
        assert status == 200, (path, body)
        for one in body["items"]:
            metadata = one["metadata"]
            revision = "" if path.endswith(("nodes", "devices")) else metadata["resourceVersion"]
            found[f"{path} {metadata.get('namespace', '')}/{metadata['name']}"] = revision
    return found


def alive_and_first(stack: Stack) -> dict[str, Any]:
    """Pids and restarts of all processes."""
    state = json.loads((stack.dir / "run" / "state.json").read_text())["processes"]
    return {name: (entry.get("pid"), entry.get("restarts", 0)) for name, entry in state.items() if name != "migrate"}


@pytest.fixture
def unchanged(stack: Stack) -> Iterator[Stack]:
    """The shared stack, which must be as it was: same objects and revisions, same processes, no traceback."""
    before, processes, said = store(stack), alive_and_first(stack), len(log_lines(stack, "critical"))
    yield stack
    assert store(stack) == before
    assert alive_and_first(stack) == processes
    assert all(alive(pid) for pid in stack.pids().values())
    assert log_lines(stack, "critical")[said:] == []


def manifest(**changes: Any) -> dict[str, Any]:
    """A good deployment with one thing wrong."""
    return {**deployment("bad", "default"), **changes}


def spec(**changes: Any) -> dict[str, Any]:
    return manifest(spec={**deployment("bad", "default")["spec"], **changes})


def role(**changes: Any) -> dict[str, Any]:
    return spec(roles=[{**deployment("bad", "default")["spec"]["roles"][0], **changes}])


def metadata(**changes: Any) -> dict[str, Any]:
    return manifest(metadata={"name": "bad", "namespace": "default", **changes})


WRONG: dict[str, tuple[dict[str, Any], set[int], list[str]]] = {
    "unknown kind": (manifest(kind="ModelDeploymint"), {400}, ["ModelDeploymint"]),
    "unknown group": (manifest(apiVersion="worker.example/v9"), {400}, ["worker.example/v9"]),
    "unknown field": (spec(replicass=3), {400}, ["spec.replicass"]),
    "unknown field deep down": (role(resources={"gpu": 1}), {400}, ["spec.roles[0].resources.gpu"]),
    "wrong type": (role(replicas="many"), {400}, ["spec.roles[0].replicas"]),
    "negative count": (role(replicas=-1), {400, 422}, ["spec.roles[0].replicas"]),
    "bad name": (metadata(name="Bad_Name"), {400, 422}, ["metadata.name", "Bad_Name"]),
    "other namespace": (metadata(namespace="elsewhere"), {400}, ["elsewhere", "default"]),
    "unknown engine": (spec(engine={"name": "Fast"}), {400, 422}, ["spec.engine.name", "LlamaCpp"]),
    "too many cards": (role(resources={"accelerator": 10**9}), {400, 422}, ["accelerator"]),
    "bad quantity": (role(resources={"cpu": "1", "ram": "1Pib"}), {400, 422}, ["ram", "1Pib"]),
}
"""A manifest, the statuses it may get, and what the sentence must name."""


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_manifest_is_refused_by_name_over_rest_and_with_the_same_words_on_the_bus(unchanged, case):
    body, statuses, named = WRONG[case]
    status, answer = unchanged.request("POST", DEPLOYMENTS, body)

    assert status in statuses, answer
    told = json.dumps(answer)
    assert answer["kind"] == "Status"
    assert [word for word in named if word not in told] == []
    assert "Traceback" not in told
    assert "pydantic" not in told

    said = ask(unchanged, json.dumps(body).encode())
    assert [word for word in named if word not in said] == []


def ask(stack: Stack, body: bytes, verb: str = "create") -> str:
    """The refusal of the bus command."""

    async def send() -> str:
        async with connect(stack) as client:
            answer = await client.request(APPLY, body, timeout=30, headers={"x-gpubus-verb": verb})
        assert "x-gpubus-error" in (answer.headers or {}), answer.data
        return answer.data.decode()

    return asyncio.run(send())


BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{chr(98 + depth)}: &{chr(98 + depth)} [{','.join([f'*{chr(97 + depth)}'] * 9)}]\n" for depth in range(9)
)
TEXTS: dict[str, tuple[str, list[str]]] = {
    "yaml bomb": (f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: bad}}\n{BOMB}", ["alias"]),
    "duplicate key": (
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: bad}\ndata: {a: '1', a: '2'}\n", ["twice", "line 4"]
    ),
    "not yaml": ("kind: [\n", ["line"]),
    "not a mapping": ("- just\n- a list\n", ["mapping"]),
    "empty": ("", []),
    "tag": ("apiVersion: v1\nkind: !!python/object/apply:os.system [id]\nmetadata: {name: bad}\n", ["tag"]),
    "deep": ("[" * 100_000, []),
}  # fmt: skip


@pytest.mark.parametrize("case", TEXTS)
def test_text_that_is_no_manifest_is_refused_at_every_door(unchanged, case, tmp_path):
    text, named = TEXTS[case]
    path = Path(tmp_path, "bad.yaml")
    path.write_text(text)

    by_bus = ask(unchanged, text.encode())
    by_command = unchanged.gpubus("apply", "-f", str(path), check=False)
    status, by_rest = unchanged.request(
        "PATCH", "/api/v1/namespaces/default/configmaps/bad?fieldManager=t", text.encode(), content="application/apply-patch+yaml"
    )  # fmt: skip

    assert status in {400, 413, 422}, by_rest
    assert by_command.returncode == 1
    assert by_command.stderr.startswith("gpubus: ")
    for told in (by_bus, by_command.stderr, json.dumps(by_rest)):
        assert [word for word in named if word not in told] == [], told
        assert "Traceback" not in told
        assert len(told) < 2000


@pytest.mark.parametrize("body", [b"{", b"", b"\xff\xfe", b"[]", b"null", b'{"kind":"ModelDeployment","kind":"Pod"}'])
def test_a_broken_json_body_is_a_bad_request(unchanged, body):
    status, answer = unchanged.request("POST", DEPLOYMENTS, body)

    assert (status, answer["kind"], answer["reason"]) == (400, "Status", "BadRequest")
    assert answer["message"]


def test_bodies_over_the_limits_are_too_large(unchanged):
    big = {**deployment("bad", "default"), "metadata": {"name": "bad", "annotations": {"a": "x" * (4 << 20)}}}

    status, answer = unchanged.request("POST", DEPLOYMENTS, big)
    assert (status, answer["kind"], answer["reason"]) == (413, "Status", "RequestEntityTooLarge")

    env = unchanged.exports()
    place = urlsplit(env["GPUBUS_URL"])
    with closing(http.client.HTTPConnection(place.hostname or "", place.port, timeout=30)) as link:
        link.putrequest("POST", "/v1/chat/completions")
        link.putheader("Authorization", f"Bearer {env['GPUBUS_TOKEN']}")
        link.putheader("Content-Length", str(33 << 20))
        link.endheaders()
        reply = link.getresponse()
        assert reply.status == 413
        assert json.loads(reply.read())["error"]["code"] == "request_too_large"


@pytest.mark.parametrize(
    ("body", "status", "param"),
    [
        (b"{", 400, None),
        (b'{"messages": []}', 400, "model"),
        (b'{"model": 7, "messages": [{"role": "user", "content": "x"}]}', 400, "model"),
        (b'{"model": "no-such-model", "messages": [{"role": "user", "content": "x"}]}', 404, "model"),
    ],
)
def test_a_bad_request_to_a_model_gets_the_openai_error(unchanged, body, status, param):
    got, answer = unchanged.request("POST", "/v1/chat/completions", body)

    assert got == status, answer
    assert answer["error"]["param"] == param
    assert answer["error"]["message"]
    assert answer["error"]["type"]


def test_unknown_namespaces_paths_methods_and_tokens_say_what_to_do(unchanged):
    body = deployment("bad", "nowhere")
    status, answer = unchanged.request("POST", path_of(body)[0], body)
    assert status == 404
    assert "kubectl create namespace nowhere" in answer["message"]

    assert unchanged.request("GET", f"{WORKER}/namespaces/default/modeldeploymints")[0] == 404
    assert unchanged.request("PUT", DEPLOYMENTS, body)[0] == 405
    status, answer = unchanged.request("GET", DEPLOYMENTS, token="wrong")
    assert (status, answer["reason"]) == (401, "Unauthorized")


BROKEN = {
    "modelstore/": "gpubus.rep.modelstore.models.v1.vm._",
    "discovery/": "gpubus.rep.discovery.node.v1.vm._",
    "deployer/": "gpubus.rep.deployer.pods.v1.vm._",
    "scheduler/": "gpubus.cmd.scheduler.submit-workload.v1.default.x",
    "gateway/": STORED,
}
"""A stored subject of each service, and whose dead letter what lies there becomes."""


def test_broken_messages_become_dead_letters_and_no_service_stumbles(stack, unchanged):
    before = letters(stack)

    async def send() -> None:
        facts = ("gpubus.evt.workload.admitted.v1.default.x", "gpubus.evt.replica.ready.v1.default.x")
        async with connect(stack) as client:
            for subject in (*BROKEN.values(), *facts):
                for body in (b"{broken", b"\xff\xfe\x00", b"[]", b'{"specversion":"1.0"}'):
                    await client.jetstream().publish(subject, body, timeout=30)
            for subject in (
                "gpubus.tel.heartbeat.vm",
                "gpubus.wake.vm",
                "gpubus.req.deployer.write-object.v1.default.x",
            ):
                await client.publish(subject, b"{broken")
            await client.flush()

    asyncio.run(send())

    def parked() -> bool:
        told = letters(stack)[len(before) :]
        return all(sum(owner in line for line in told) >= 3 for owner in BROKEN)

    eventually_sync(parked, timeout=30, interval=0.3)
    told = letters(stack)[len(before) :]
    assert all("Malformed" in line for line in told), told

    name = "after-the-broken"
    status, _ = stack.request("POST", "/api/v1/namespaces/default/configmaps", {"metadata": {"name": name}})
    assert status == 201
    assert stack.request("DELETE", f"/api/v1/namespaces/default/configmaps/{name}")[0] == 200


def letters(stack: Stack) -> list[str]:
    """Lines of `gpubus dead-letters list`."""
    lines = stack.gpubus("dead-letters", "list").stdout.splitlines()
    return [line for line in lines if line.split(maxsplit=1)[0].isdigit()]
