"""What a ModelDeployment may be and how it may change: every refusal names the field and the way out."""

from typing import Any

import pytest

from services.deployer.domain.rules import write_rules
from shared.resources.deployment import ModelDeployment
from tests.support.deployer import (
    CPU_POOL,
    DIGEST,
    GPU_POOL,
    a_deployment,
    a_pool,
    a_role,
    an_artifact,
    deleting,
    replicas,
    with_role,
    with_spec,
)

GPU = {"instanceType": GPU_POOL, "resources": {"accelerator": 2}}
ARTIFACT = {"name": "m1", "artifactRef": {"name": "weights"}}
THERE = {
    ("InstanceType", "", CPU_POOL): a_pool(),
    ("InstanceType", "", GPU_POOL): a_pool(GPU_POOL, capacity=8),
    ("ModelArtifact", "default", "weights"): an_artifact(),
}


def check(
    new: ModelDeployment,
    old: ModelDeployment | None = None,
    files: tuple[str, ...] | None = ("m.gguf",),
    there: Any = THERE,
) -> dict[str, str]:
    rules = write_rules(lambda digest: files if digest == DIGEST else None)["ModelDeployment"]
    found = {key: resource.to_json() for key, resource in there.items()}
    causes = rules.validate(new, old, lambda *key: found.get(key))
    problem = rules.names.problem(new.name)
    named = {"metadata.name": problem} if problem else {}
    return named | {cause.field: cause.message for cause in causes}


def test_the_demos_deployment_is_fine():
    assert check(a_deployment("smollm2", engine="LlamaCpp", model=ARTIFACT)) == {}


REFUSED: list[tuple[str, ModelDeployment, str, str]] = [
    ("two-roles-of-one-name", a_deployment(roles=[a_role(), a_role()]), "spec.roles[1].name", "spec.roles[0]"),
    (
        "server-beside-prefill",
        a_deployment(engine="vLLM", roles=[a_role(), a_role(name="p", kind="Prefill")]),
        "spec.roles[0].kind",
        "cannot stand beside",
    ),
    ("llamacpp-without-artifact", a_deployment(engine="LlamaCpp"), "spec.model.artifactRef", "GGUF"),
    ("custom-without-command", a_deployment(engine="Custom"), "spec.roles[0].command", "give it here"),
    ("api-key", a_deployment(roles=[a_role(extraArgs=["--api-key=x"])]), "spec.roles[0].extraArgs[0]", "keys are managed"),
    (
        "api-key-of-llamacpp",
        a_deployment(engine="LlamaCpp", model=ARTIFACT, roles=[a_role(extraArgs=["--api-key", "x"])]),
        "spec.roles[0].extraArgs[0]",
        "roles[].command",
    ),
    (
        "alias-of-llamacpp",
        a_deployment(engine="LlamaCpp", model=ARTIFACT, roles=[a_role(extraArgs=["-a", "other"])]),
        "spec.roles[0].extraArgs[0]",
        "platform sets it",
    ),
    ("host", a_deployment(roles=[a_role(extraArgs=["--host", "::"])]), "spec.roles[0].extraArgs[0]", "platform sets it"),
    (
        "port-beside-another-port",
        a_deployment(engine="vLLM", roles=[a_role(extraArgs=["--port=9000"], ports=[{"port": 8000}])]),
        "spec.roles[0].extraArgs[0]",
        "--port",
    ),
    (
        "model-beside-an-artifact",
        a_deployment(engine="vLLM", model=ARTIFACT, roles=[a_role(extraArgs=["--model=/x"])]),
        "spec.roles[0].extraArgs[0]",
        "--model",
    ),
    (
        "other-served-name",
        a_deployment(engine="vLLM", roles=[a_role(extraArgs=["--served-model-name=other"])]),
        "spec.roles[0].extraArgs[0]",
        "'other'",
    ),
    (
        "abbreviated",
        a_deployment(engine="vLLM", roles=[a_role(extraArgs=["--kv-transfer={}"])]),
        "spec.roles[0].extraArgs[0]",
        "--kv-transfer-config",
    ),
    (
        "underscores-and-dots",
        a_deployment(engine="vLLM", roles=[a_role(extraArgs=["--kv_transfer_config.kv_role=x"])]),
        "spec.roles[0].extraArgs[0]",
        "--kv-transfer-config",
    ),
    (
        "hf-token-beside-an-artifact",
        a_deployment(model=ARTIFACT, roles=[a_role(env=[{"name": "HF_TOKEN", "value": "x"}])]),
        "spec.roles[0].env[0].name",
        "HF_TOKEN",
    ),
    (
        "reserved-env",
        a_deployment(roles=[a_role(env=[{"name": "GPUSTACK_REPLICA_SIZE", "value": "1"}])]),
        "spec.roles[0].env[0].name",
        "set by the platform",
    ),
    (
        "tensor-parallel-wider-than-the-cards",
        a_deployment(engine="vLLM", roles=[a_role(**GPU, extraArgs=["--tensor-parallel-size", "4"])]),
        "spec.roles[0].extraArgs",
        "4 cards, a replica has 2",
    ),
    (
        "degree-is-no-number",
        a_deployment(engine="vLLM", roles=[a_role(**GPU, extraArgs=["--tensor-parallel-size=two"])]),
        "spec.roles[0].extraArgs[0]",
        "whole number",
    ),
    (
        "degree-twice",
        a_deployment(engine="vLLM", roles=[a_role(**GPU, extraArgs=["-tp", "1", "--tensor-parallel-size=2"])]),
        "spec.roles[0].extraArgs[2]",
        "the same",
    ),
    (
        "more-cards-than-the-pool",
        a_deployment(roles=[a_role(instanceType=GPU_POOL, resources={"accelerator": 9})]),
        "spec.roles[0].resources.accelerator",
        "has 8",
    ),
    (
        "cards-of-a-pool-without-any",
        a_deployment(roles=[a_role(resources={"accelerator": 1})]),
        "spec.roles[0].resources.accelerator",
        "no accelerators",
    ),
    (
        "no-card-beside-a-role-with-cards",
        a_deployment(roles=[a_role(**GPU), a_role(name="b", instanceType=GPU_POOL, resources={"accelerator": 0})]),
        "spec.roles[1].resources.accelerator",
        "without cards",
    ),
    (
        "profile-and-percentage",
        a_deployment(
            roles=[
                a_role(
                    instanceType=GPU_POOL,
                    resources={"acceleratorSlicedMemoryPercentage": 20, "acceleratorPartitionedProfile": "1g.10gb"},
                )
            ]
        ),
        "spec.roles[0].resources.acceleratorPartitionedProfile",
        "exclude",
    ),
    (
        "part-of-two-cards",
        a_deployment(
            roles=[a_role(instanceType=GPU_POOL, resources={"accelerator": 2, "acceleratorSlicedMemoryPercentage": 20})]
        ),
        "spec.roles[0].resources.accelerator",
        "exactly 1",
    ),
    (
        "hostname-level",
        a_deployment(roles=[a_role(topology={"requiredLevel": "kubernetes.io/hostname"})]),
        "spec.roles[0].topology.requiredLevel",
        "one host",
    ),
    (
        "level-that-is-no-label",
        a_deployment(roles=[a_role(topology={"requiredLevel": "a b"})]),
        "spec.roles[0].topology.requiredLevel",
        "not a label key",
    ),
    ("unknown-router", a_deployment(engine="vLLM", router={"name": "x"}), "spec.router.name", "llm-d-router"),
    (
        "router-of-another-engine",
        a_deployment(engine="SGLang", router={"name": "vllm-router"}),
        "spec.router.name",
        "not SGLang",
    ),
    ("dot-in-the-name", a_deployment("mistral-7b-v0.1"), "metadata.name", "RFC 1035"),
    ("name-begins-with-a-digit", a_deployment("123a"), "metadata.name", "start with a letter"),
    ("upper-case-name", a_deployment("Qwen"), "metadata.name", "lower case"),
    ("name-with-a-newline", a_deployment("qwen\n"), "metadata.name", "letter"),
    ("name-of-57", a_deployment("a" * 57), "spec.roles[0].name", "64 characters"),
    (
        "member-name-of-64",
        a_deployment("a" * 51, engine="vLLM", roles=[a_role(size=2, replicas=2)]),
        "spec.roles[0].name",
        "-r1-m1",
    ),
    (
        "role-named-like-a-replica",
        a_deployment(engine="vLLM", roles=[a_role(name="x", size=2), a_role(name="x-r0")]),
        "spec.roles[1].name",
        "replica 0 of role 'x'",
    ),
    (
        "port-twice",
        a_deployment(roles=[a_role(ports=[{"port": 1}, {"port": 1}])]),
        "spec.roles[0].ports[1]",
        "twice",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("new", "field", "words"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_refused_with_field_and_way_out(new, field, words):
    causes = check(new)

    assert field in causes, causes
    assert words in causes[field]


ACCEPTED = [
    ("served-name-repeated", a_deployment(engine="vLLM", roles=[a_role(extraArgs=["--served-model-name=m1"])])),
    ("port-repeated", a_deployment(engine="vLLM", roles=[a_role(extraArgs=["--port", "8000"])])),
    ("tokenizer", a_deployment(engine="vLLM", model=ARTIFACT, roles=[a_role(extraArgs=["--tokenizer", "x"])])),
    ("max-model-len", a_deployment(engine="vLLM", roles=[a_role(extraArgs=["--max-model-len=4096"])])),
    ("take-over-says-everything", a_deployment(roles=[a_role(command=["serve", "--api-key", "x", "--port", "1"])])),
    ("artifact-that-is-not-there", a_deployment(model={"name": "m1", "artifactRef": {"name": "later"}})),
    ("pool-that-is-not-there", a_deployment(roles=[a_role(instanceType="later")])),
    ("name-of-56", a_deployment("a" * 56)),
    ("member-name-of-63", a_deployment("a" * 50, engine="vLLM", roles=[a_role(size=2, replicas=2)])),
    ("empty-level", a_deployment(roles=[a_role(topology={"requiredLevel": ""})])),
    ("model-name-with-slash-and-dot", a_deployment(model={"name": "Qwen/Qwen3-0.6B"})),
    ("one-argument-with-spaces", a_deployment(engine="vLLM", roles=[a_role(extraArgs=["--a 1 --b 2"])])),
    ("no-replicas", replicas(a_deployment(), 0)),
    ("all-cards-of-the-pool", a_deployment(roles=[a_role(instanceType=GPU_POOL, resources={"accelerator": 8})])),
]


@pytest.mark.parametrize("new", [case[1] for case in ACCEPTED], ids=[case[0] for case in ACCEPTED])
def test_accepted(new):
    assert check(new) == {}


@pytest.mark.parametrize(
    ("files", "words"),
    [
        (("config.json",), "no *.gguf"),
        (("a.gguf", "b.gguf"), "2 *.gguf files (a.gguf, b.gguf)"),
        (("m.gguf", "mmproj-m.gguf"), ""),
        (("m-00001-of-00002.gguf", "m-00002-of-00002.gguf"), ""),
        (None, ""),
    ],
)
def test_llamacpp_needs_one_gguf_of_what_is_resolved(files, words):
    causes = check(a_deployment(engine="LlamaCpp", model=ARTIFACT), files=files)

    assert (words in causes["spec.model.artifactRef"]) if words else causes == {}


DEPLOYED = a_deployment(roles=[a_role(command=["serve"], resources={"cpu": "1"})])


@pytest.mark.parametrize(
    ("new", "field"),
    [
        (with_spec(DEPLOYED, model=DEPLOYED.spec.model.model_copy(update={"name": "x"})), "spec.model"),
        (with_spec(DEPLOYED, engine=DEPLOYED.spec.engine.model_copy(update={"name": "Custom"})), "spec.engine.name"),
        (with_role(DEPLOYED, command=[]), "spec.roles[0].command"),
        (with_role(DEPLOYED, kind="Decode"), "spec.roles[0].kind"),
        (with_role(DEPLOYED, size=2), "spec.roles[0].size"),
        (with_role(DEPLOYED, name="other"), "spec.roles"),
    ],
)
def test_frozen_fields_are_named(new, field):
    assert field in check(new, DEPLOYED)


@pytest.mark.parametrize(
    "fields", [{"replicas": 3}, {"command": ["serve", "-v"]}, {"extra_args": ["--x"]}, {"image": "i"}]
)
def test_what_may_change_may_change(fields):
    assert check(with_role(DEPLOYED, **fields), DEPLOYED) == {}


def test_an_old_object_that_breaks_a_newer_rule_may_be_scaled():
    old = a_deployment(roles=[a_role(extraArgs=["--api-key=x"])])

    assert check(replicas(old, 5), old) == {}


def test_a_deployment_that_is_going_is_not_judged():
    old = deleting(a_deployment(roles=[a_role(instanceType="gone")]))

    assert check(old, old) == {}


def test_our_finalizer_is_not_the_users_to_take_off():
    kept = DEPLOYED.metadata.model_copy(update={"finalizers": ["gpubus.io/replicas-stopped"]})
    old = deleting(DEPLOYED.model_copy(update={"metadata": kept}))
    new = old.model_copy(update={"metadata": old.metadata.model_copy(update={"finalizers": []})})

    assert "delete the Node" in check(new, old)["metadata.finalizers"]


def test_facts_tell_creation_edits_and_the_wish_to_go():
    facts = write_rules(lambda _digest: None)["ModelDeployment"].facts
    new = a_deployment()

    assert [type(f).__name__ for f in facts(None, new)] == ["DeploymentApplied"]
    assert [type(f).__name__ for f in facts(new, replicas(new, 2))] == ["DeploymentApplied"]
    assert facts(new, new) == ()
    assert [type(f).__name__ for f in facts(new, deleting(new))] == ["DeployerObjectRemoved"]
    assert [type(f).__name__ for f in facts(new, None)] == ["DeploymentRemoved"]
