"""kubectl on a kind of another service, whose defaults fill the elements of a list: a real deployer answers."""

import re

import pytest

from tests.support.gateway import Gateway

DEPLOYMENT = """
apiVersion: worker.gpustack.ai/v1
kind: ModelDeployment
metadata: {name: NAME}
spec:
  model: {name: m, artifactRef: {name: a}}
  engine: {name: Simulated}
  roles:
    - name: server
      instanceType: x
      env: [{name: A, value: "1"}, {name: B}]
"""


@pytest.fixture(scope="module")
def gateway():
    running = Gateway()
    try:
        running.start()
        running.copy("deployer", module="services.deployer").start().ready()
        yield running
    finally:
        running.close()


def manifest(name, text=DEPLOYMENT):
    return text.replace("NAME", name)


def role(gateway, name, path):
    return gateway.kubectl("get", "md", name, "-o", f"jsonpath={{.spec.roles[0].{path}}}")


def test_second_apply_of_a_manifest_changes_nothing(gateway):
    assert "created" in gateway.kubectl("apply", "-f", "-", text=manifest("twice"))
    assert "unchanged" in gateway.kubectl("apply", "-f", "-", text=manifest("twice"))
    assert gateway.kubectl("diff", "-f", "-", text=manifest("twice")) == ""
    assert gateway.kubectl("get", "md", "twice", "-o", "jsonpath={.metadata.generation}") == "1"


def test_removed_field_and_element_go_and_the_rest_stays(gateway):
    text = manifest(
        "less", DEPLOYMENT.replace("instanceType: x", "instanceType: x\n      replicas: 3\n      shmSize: 1Gi")
    )
    gateway.kubectl("apply", "-f", "-", text=text)

    said = gateway.kubectl("apply", "-f", "-", text=text.replace(", {name: B}", "").replace("      shmSize: 1Gi\n", ""))

    assert "configured" in said
    assert role(gateway, "less", "env[*].name") == "A"
    assert role(gateway, "less", "shmSize") == ""
    assert role(gateway, "less", "replicas") == "3"


def test_scale_outlives_an_apply_that_says_nothing_of_it(gateway):
    gateway.kubectl("apply", "-f", "-", text=manifest("scaled"))
    gateway.kubectl("scale", "md/scaled", "--replicas=0")

    gateway.kubectl("apply", "-f", "-", text=manifest("scaled", DEPLOYMENT.replace('value: "1"', 'value: "2"')))

    assert role(gateway, "scaled", "replicas") == "0"
    assert role(gateway, "scaled", "env[0].value") == "2"


def test_patch_of_one_role_leaves_the_others(gateway):
    gateway.kubectl("apply", "-f", "-", text=manifest("patched"))

    gateway.kubectl("patch", "md", "patched", "-p", '{"spec":{"roles":[{"name":"server","replicas":2}]}}')

    assert role(gateway, "patched", "replicas") == "2"
    assert role(gateway, "patched", "instanceType") == "x"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("instanceType: x", "instanceType: x\n      replicaz: 2"), r"BadRequest.*spec\.roles\[0\]\.replicaz: unknown field"),
        (("instanceType: x", 'instanceType: x\n      replicas: "2"'), r"BadRequest.*spec\.roles\[0\]\.replicas: must be a valid integer"),
        (("instanceType: x", "instanceType: x\n      replicas: -2"), r'The ModelDeployment "wrong" is invalid: spec\.roles\[0\]\.replicas: must be'),
        (("name: Simulated", "name: vllm"), r"The ModelDeployment \"wrong\" is invalid: spec\.engine\.name: must be 'vLLM'"),
        (("name: wrong", "name: Wrong_1"), r'The ModelDeployment "Wrong_1" is invalid: metadata\.name'),
    ],
)  # fmt: skip
def test_refusals_read_as_kubernetes_does(gateway, change, said):
    text = manifest("wrong").replace(*change)

    assert re.search(said, gateway.kubectl("apply", "-f", "-", text=text, fails=True), re.DOTALL)
    assert "NotFound" in gateway.kubectl("get", "md", "wrong", fails=True)


def test_stored_kinds_that_are_not_served_say_so(gateway):
    text = """
apiVersion: worker.gpustack.ai/v1
kind: InstancePersistentVolume
metadata: {name: vol}
spec: {capacity: 10Gi}
"""
    gateway.kubectl("apply", "-f", "-", text=text)

    gateway.kubectl(
        "wait", "--for=jsonpath={.status.phase}=NotServedYet", "instancepersistentvolume/vol", "--timeout=20s"
    )

    said = gateway.kubectl("get", "instancepersistentvolumes", "vol")
    assert said.split()[:5] == ["NAME", "CAPACITY", "PHASE", "AGE", "vol"]
    assert "NotServedYet" in said


def test_kind_of_the_system_and_unknown_subresource_are_explained(gateway):
    made = gateway.call("POST", "/apis/worker.gpustack.ai/v1/devices", {"metadata": {"name": "x"}})
    below = gateway.call("POST", "/api/v1/namespaces/default/pods/x/exec", {})

    assert (made.status, made.body["message"]) == (
        405,
        "devices are kept by the system: they can be read and deleted, not written",
    )
    assert (below.status, below.body["message"]) == (404, "pods have no exec here; of one object there is log, status")
