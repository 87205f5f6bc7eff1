"""The journey of a deployment, however it is brought in: ready, used, scaled, gone, and every card free again."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import openai
import pytest

from tests.e2e.story import (
    POOL,
    WORKER,
    Facts,
    artifact,
    available,
    cards_free,
    cards_of,
    connect,
    deployment,
    items,
    namespace,
    path_of,
    settled,
    what,
)
from tests.support.stack import BIN, Stack
from tests.support.wait import eventually_sync

pytestmark = pytest.mark.timeout(120)
Bodies = list[dict[str, Any]]


def by_kubectl(stack: Stack, verb: str, bodies: Bodies) -> None:
    text = "\n---\n".join(json.dumps(body) for body in bodies)
    stack.kubectl(verb, "-f", "-", text=text)
    if verb == "apply":
        where = bodies[0]["metadata"]["namespace"]
        stack.kubectl("wait", "--for=condition=Available", "md/m", "-n", where, "--timeout=45s")


def by_gpubus(stack: Stack, verb: str, bodies: Bodies) -> None:
    stack.gpubus(verb, "-f", "-", text="\n---\n".join(json.dumps(body) for body in bodies))


def by_rest(stack: Stack, verb: str, bodies: Bodies) -> None:
    for body in bodies:
        collection, one = path_of(body)
        status, answer = stack.request("POST", collection, body) if verb == "apply" else stack.request("DELETE", one)
        assert status == (201 if verb == "apply" else 200), answer


def by_bus(stack: Stack, verb: str, bodies: Bodies) -> None:
    async def send() -> None:
        async with connect(stack) as client:
            for body in bodies:
                subject = f"gpubus.req.gateway.apply.v1.admin.{body['metadata']['namespace']}"
                sent, headers = json.dumps(body).encode(), {"x-gpubus-verb": verb}
                answer = await client.request(subject, sent, timeout=30, headers=headers)
                assert "x-gpubus-error" not in (answer.headers or {}), answer.data

    asyncio.run(send())


WAYS: dict[str, Callable[[Stack, str, Bodies], None]] = {
    "kubectl": by_kubectl, "bus": by_bus, "gpubus": by_gpubus, "rest": by_rest,
}  # fmt: skip


def essence(body: dict[str, Any]) -> dict[str, Any]:
    """What must not depend on the way: the spec with its defaults, and every condition."""
    told = {one["type"]: (one["status"], one["reason"]) for one in body["status"]["conditions"]}
    return {"spec": body["spec"], "conditions": told, "phase": body["status"]["phase"]}


def holders(stack: Stack) -> dict[str, list[str]]:
    """Who holds each card, as users see it."""
    return {card["id"]: card["holders"] for body in items(stack, f"{WORKER}/devices") for card in cards_of(body)}


@pytest.fixture(scope="module")
def known() -> dict[str, Any]:
    """The essence that the first way had; every other must have the same."""
    return {}


@pytest.mark.parametrize("way", WAYS)
def test_each_way_brings_the_same_deployment_to_life_and_takes_it_away(fleet, known, way):
    with namespace(fleet, f"by-{way}") as where:
        bodies = [artifact("weights", where), deployment("m", where, weights="weights")]

        WAYS[way](fleet, "apply", bodies)
        body = available(fleet, "m", where)

        assert known.setdefault("essence", essence(body)) == essence(body)
        assert essence(body)["phase"] == "Ready"
        (pod,) = items(fleet, f"/api/v1/namespaces/{where}/pods")
        card = pod["metadata"]["annotations"]["device.gpustack.ai/accelerator.allocated"]
        holder = f"{where}/{pod['metadata']['name']}"
        eventually_sync(lambda: holders(fleet)[card] == [holder], timeout=30)

        WAYS[way](fleet, "delete", bodies)
        eventually_sync(lambda: cards_free(fleet), timeout=30)
        eventually_sync(lambda: fleet.get("modeldeployments", "m", where) is None, timeout=30)
        eventually_sync(lambda: fleet.get("modelartifacts", "weights", where) is None, timeout=30)


@pytest.fixture
def served(fleet) -> Iterator[tuple[Stack, str]]:
    """A deployment with one ready replica that serves `story-model`."""
    with namespace(fleet, "served") as where:
        by_rest(
            fleet, "apply", [artifact("weights", where), deployment("m", where, model="story-model", weights="weights")]
        )
        available(fleet, "m", where)
        yield fleet, where


def test_the_openai_sdk_gets_answers_and_the_usage_is_told(served):
    stack, _ = served
    env = stack.exports()
    said: Any = [{"role": "user", "content": "one two three"}]
    with (
        Facts(stack) as facts,
        openai.OpenAI(base_url=env["OPENAI_BASE_URL"], api_key=env["OPENAI_API_KEY"]) as client,
    ):
        eventually_sync(lambda: "story-model" in [model.id for model in client.models.list()], timeout=30)

        whole = client.chat.completions.create(model="story-model", messages=said, max_tokens=5)
        parts = list(
            client.chat.completions.create(
                model="story-model", messages=said, max_tokens=5, stream=True, stream_options={"include_usage": True}
            )
        )
        text = client.completions.create(model="story-model", prompt="one two", max_tokens=4)
        vector = client.embeddings.create(model="story-model", input=["one", "two"])

        assert whole.choices[0].message.content
        assert whole.usage is not None
        assert whole.usage.completion_tokens == 5
        streamed = "".join(part.choices[0].delta.content or "" for part in parts if part.choices)
        assert streamed == whole.choices[0].message.content
        assert len([part for part in parts if part.choices]) > 5, "not streamed"
        assert parts[-1].usage == whole.usage
        assert text.choices[0].text
        assert len(vector.data) == 2
        assert vector.data[0].embedding != vector.data[1].embedding
        with pytest.raises(openai.NotFoundError) as missing:
            client.chat.completions.create(model="no-such-model", messages=said)
        assert missing.value.code == "model_not_found"

        spent = {"requests": 4, "outputTokens": 5 + 5 + 4}

        def told() -> bool:
            rows = [row for one in facts.seen if what(one) == "request.metered" for row in one["data"]["rows"]]
            rows = [row for row in rows if row["model"] == "story-model" and row["outcome"] == "ok"]
            return {name: sum(row[name] for row in rows) for name in spent} == spent

        eventually_sync(told, timeout=30)


def test_kubectl_shows_watches_describes_and_logs(served):
    stack, where = served
    watching = [str(BIN / "kubectl"), "get", "pods", "-n", where, "-w", "--no-headers"]
    env = {**stack.env, "KUBECONFIG": str(stack.dir / "kubeconfig"), "HOME": str(stack.dir)}
    with subprocess.Popen(watching, env=env, stdout=subprocess.PIPE, text=True) as watch:
        assert watch.stdout is not None
        assert watch.stdout.readline().split()[:3] == ["m-server-r0", "1/1", "Running"]
        stack.kubectl("scale", "md/m", "-n", where, "--replicas=2")
        until(watch, lambda words: words[:3] == ["m-server-r1", "1/1", "Running"])
        stack.kubectl("scale", "md/m", "-n", where, "--replicas=1")
        until(watch, lambda words: words[0] == "m-server-r1" and words[2] == "Terminating")
        watch.terminate()

    told = stack.kubectl("describe", "md", "m", "-n", where).stdout
    for reason in ("DeploymentApplied", "WorkloadAdmitted", "ReplicaReady", "DeploymentAvailable"):
        assert reason in told
    assert "simulated: vllm serve" in stack.kubectl("logs", "m-server-r0", "-n", where).stdout
    assert "m-server-r0" in stack.gpubus("get", "pods", "-n", where).stdout
    assert "simulated: vllm serve" in stack.gpubus("logs", "m-server-r0", "-n", where).stdout
    assert "is admitted: node a10g" in stack.gpubus("why", "m", "-n", where).stdout


def until(watch: subprocess.Popen[str], match: Callable[[list[str]], bool]) -> None:
    """Read lines of a watch until one matches; the test's time-out is the limit."""
    assert watch.stdout is not None
    for line in watch.stdout:
        if match(line.split()):
            return
    pytest.fail("the watch ended")


def test_scale_by_patch_up_and_down_takes_and_frees_exact_cards(served):
    stack, where = served
    _, one = path_of(deployment("m", where))

    for replicas in (3, 1):
        patch = [{"op": "replace", "path": "/spec/roles/0/replicas", "value": replicas}]
        status, _ = stack.request("PATCH", one, patch, content="application/json-patch+json")
        assert status == 200
        body = eventually_sync(
            lambda: (now := stack.get("modeldeployments", "m", where)) and settled(now) and now, timeout=45
        )

        assert body["status"]["roleSummary"] == f"{replicas}R"

        def as_wanted(count: int = replicas) -> bool:
            pool = stack.get("instancetypes", POOL, None)
            pods = items(stack, f"/api/v1/namespaces/{where}/pods")
            return pool["status"]["accelerator"]["remaining"] == 8 - count and len(pods) == count

        eventually_sync(as_wanted, timeout=30)
    assert [pod["metadata"]["name"] for pod in items(stack, f"/api/v1/namespaces/{where}/pods")] == ["m-server-r0"]


UP = {
    "artifact.resolved": ["artifact.ready"],
    "deployment.applied": ["workload.queued"],
    "workload.queued": ["workload.admitted"],
    "workload.admitted": ["artifact.ready"],
    "artifact.ready": ["replica.started"],
    "replica.started": ["replica.ready"],
    "replica.ready": ["deployment.available"],
}
DOWN = {
    "replica.unready": ["replica.stopped"],
    "replica.stopped": ["workload.cancelled"],
    "workload.cancelled": ["capacity.freed"],
    "capacity.freed": ["deployment.removed"],
}
"""Each fact and what may only follow it."""


SAME_OWNER = (
    ("deployment.applied", "replica.started", "replica.ready", "deployment.available"),
    ("workload.queued", "workload.admitted"),
    ("artifact.resolved", "artifact.ready"),
)
"""Facts of one service: they also reach every listener in this order."""


def test_facts_come_once_and_in_the_order_of_the_journey(fleet):
    with Facts(fleet) as facts, namespace(fleet, "told") as where:
        bodies = [artifact("weights", where), deployment("m", where, weights="weights")]
        by_rest(fleet, "apply", bodies)
        facts.wait(where, "deployment.available")
        up = facts.of(where)
        in_order(up, UP)
        arrived = [what(one) for one in facts.seen if one in up]
        for chain in SAME_OWNER:
            assert [fact for fact in arrived if fact in chain] == list(chain)

        operation = [one["correlationid"] for one in up if what(one) in {"deployment.applied", *SAME_OWNER[1]}]
        assert len(operation) == 3
        assert len(set(operation)) == 1, "the admission cannot be traced back to the user's write"

        by_rest(fleet, "delete", bodies[1:])
        facts.wait(where, "deployment.removed")
        (admitted,) = (one["data"] for one in up if what(one) == "workload.admitted")
        freed = [
            one for one in facts.seen if what(one) == "capacity.freed" and one["data"]["devices"] == admitted["devices"]
        ]
        down = [*facts.of(where)[len(up) :], *freed]
        in_order(sorted(down, key=lambda one: int(one["resourceversion"])), DOWN)
        assert len({one["id"] for one in facts.seen}) == len(facts.seen)


def in_order(envelopes: list[dict[str, Any]], rules: dict[str, list[str]]) -> None:
    """Each fact of the rules exactly once, and before those that may only follow it."""
    told = [what(one) for one in envelopes]
    for first, later in rules.items():
        assert told.count(first) == 1, (first, told)
        assert all(told.index(first) < told.index(after) for after in later), (first, told)
