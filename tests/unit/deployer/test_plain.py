"""Pods without a deployment: wait, run, end, go; and what their writers may say."""

from typing import Any

import pytest

from services.deployer.domain import plain
from services.deployer.domain.names import pod_workload_uid
from services.deployer.domain.observed import STOPPED
from services.deployer.domain.rules import write_rules
from shared.resources.base import Condition, get_condition
from shared.resources.core import Pod
from tests.support.deployer import NOW, a_plain_pod, a_workload, deleting

NODES = frozenset({"n1"})


def step(pod: Pod, workload: Any = None, *, resync: bool = False):
    return plain.step(pod, workload, nodes=NODES, resync=resync, now=NOW)


def own(pod: Pod, **fields: Any):
    return a_workload(pod.name, pod_workload_uid(pod.uid), owner=pod.uid, **fields)


def with_status(pod: Pod, **fields: Any) -> Pod:
    return pod.model_copy(update={"status": pod.status.model_copy(update=fields)})


BOUND = a_plain_pod(nodeName="n1")
BOUND.metadata.annotations["gpubus.io/workload-uid"] = pod_workload_uid(BOUND.uid)


def test_a_new_pod_asks_for_capacity_once():
    pod = a_plain_pod()

    order = step(pod).submit

    assert (order.name, order.uid, order.owner_kind) == ("p", pod_workload_uid("uid-p"), "Pod")
    assert order.spec["queueName"] == "q"
    assert step(plain.submitted(pod, NOW)) is None
    assert step(plain.submitted(pod, NOW), resync=True).submit == order


def test_it_is_bound_to_what_it_was_given():
    pod = a_plain_pod()

    bound = step(pod, own(pod, node="n1"))

    assert bound.pod.spec.node_name == "n1"
    assert bound.pod.metadata.annotations["device.gpustack.ai/accelerator.allocated"] == "GPU-1"
    assert bound.binds.name == "p"


def test_why_it_waits_is_shown_once():
    pod = a_plain_pod()
    waiting = own(pod, QuotaReserved="False:QueueNotFound:no queue nope")

    told = step(pod, waiting)

    condition = get_condition(told.pod.status.conditions, "PodScheduled")
    assert (condition.status, condition.reason, condition.message) == ("False", "QueueNotFound", "no queue nope")
    assert step(told.pod, waiting) is None


def test_another_pods_workload_of_its_name_is_waited_for():
    assert step(a_plain_pod(), a_workload("p", "old"), resync=True) is None


def test_a_bound_pod_whose_devices_are_taken_back_is_stopped():
    assert step(BOUND, own(BOUND, node="n1")) is None
    assert step(BOUND, own(BOUND, node="n1", Evicted="True")).stop
    assert step(BOUND, None).stop


@pytest.mark.parametrize(("phase", "outcome"), [("Succeeded", "Succeeded"), ("Failed", "Failed")])
def test_what_ended_gives_its_devices_back(phase, outcome):
    pod = with_status(BOUND, finished=phase)

    assert step(pod, own(pod, node="n1")).cancel.outcome == outcome
    assert step(pod, own(pod, node="n1", Finished="True")) is None


def test_a_deleted_pod_goes_when_its_node_has_confirmed():
    going = deleting(BOUND)
    confirmed = with_status(going, conditions=[Condition(type=STOPPED, status="True")])

    assert step(going, own(BOUND, node="n1")) is None
    gone = step(confirmed, own(BOUND, node="n1"))
    assert gone.remove
    assert gone.cancel.outcome == "Cancelled"


def test_a_deleted_pod_that_was_never_bound_goes_at_once():
    pod = deleting(a_plain_pod())

    assert step(pod, own(pod)).remove
    assert step(pod, own(pod)).cancel.name == "p"


def check(pod: Pod, old: Pod | None = None) -> dict[str, str]:
    causes = write_rules(lambda _digest: None)["Pod"].validate(pod, old, lambda *_key: None)
    return {cause.field: cause.message for cause in causes}


def limited(limits: dict[str, Any], requests: dict[str, Any] | None = None, **container: Any) -> Pod:
    body = {"name": "c", "command": ["x"], "resources": {"limits": limits, "requests": requests or {}}, **container}
    return a_plain_pod(containers=[body])


LIMITS = "spec.containers[0].resources.limits"
REQUESTS = "spec.containers[0].resources.requests"


@pytest.mark.parametrize(
    ("pod", "field"),
    [
        (limited({"nvidia.com/gpu": "0.5"}), f"{LIMITS}[nvidia.com/gpu]"),
        (limited({"nvidia.com/gpu": "1500m"}), f"{LIMITS}[nvidia.com/gpu]"),
        (limited({"nvidia.com/gpu": 8}, {"nvidia.com/gpu": 6}), f"{REQUESTS}[nvidia.com/gpu]"),
        (limited({}, {"nvidia.com/gpu": 1}), f"{LIMITS}[nvidia.com/gpu]"),
        (limited({"nvidia.com/gpu": 1, "amd.com/gpu": 1}), "spec"),
        (limited({"nvidia.com/gpu": 1, "nvidia.com/gpu.shared": 1}), "spec"),
        (limited({"gpu": 1}), f"{LIMITS}[gpu]"),
        (limited({"memory": "100m"}), f"{LIMITS}[memory]"),
        (limited({"cpu": "1"}, {"cpu": "2"}), f"{REQUESTS}[cpu]"),
        (a_plain_pod(containers=[{"name": "c", "image": "busybox"}]), "spec.containers[0].command"),
        (a_plain_pod(nodeName="n1"), "spec.nodeName"),
        (a_plain_pod(containers=[{"name": "a", "command": ["x"]}, {"name": "b", "command": ["x"]}]), "spec.containers"),
    ],
)
def test_refused(pod, field):
    assert field in check(pod)


@pytest.mark.parametrize("count", [1, "1", "1.0", "+1", "1e0", "1000m"])
def test_a_whole_card_may_be_written_in_many_ways(count):
    assert check(limited({"nvidia.com/gpu": count})) == {}


def test_a_pod_without_a_queue_is_told_where_to_find_one():
    pod = a_plain_pod()
    pod.metadata.labels.clear()

    assert "ENTRANCE" in check(pod)["metadata.labels[kueue.x-k8s.io/queue-name]"]


def test_a_pod_may_not_be_edited_but_for_what_kubernetes_allows():
    old = limited({"memory": "1Gi"})

    assert check(limited({"memory": "1024Mi"}, image="other"), old) == {}
    assert "spec" in check(limited({"memory": "2Gi"}), old)


def test_what_a_pod_holds_is_not_the_tenants_to_write():
    pod = a_plain_pod()
    pod.metadata.annotations["device.gpustack.ai/accelerator.allocated"] = "GPU-9"
    field = "metadata.annotations[device.gpustack.ai/accelerator.allocated]"

    assert field in check(pod)
    assert field in check(pod, a_plain_pod())


def test_workspaces_are_stored_and_say_that_they_are_not_served():
    from shared.resources.instance import Instance

    rules = write_rules(lambda _digest: None)["Instance"]
    body = {"metadata": {"name": "i"}, "spec": {"type": "t", "image": "x", "resources": {"accelerator": 2}}}

    stored = rules.default(Instance.model_validate(body))

    assert stored.status.conditions[0].reason == "NotServedYet"
    part = {"acceleratorSlicedMemoryPercentage": 20, "accelerator": "2"}
    wrong = Instance.model_validate({**body, "spec": {**body["spec"], "resources": part}})
    assert [c.field for c in rules.validate(wrong, None, lambda *_key: None)] == ["spec.resources.accelerator"]
