"""The strict edge: what is refused, how it is called, and what null means."""

import copy

import pytest

from services.gateway.domain.decoding import address, decode, kind_of
from shared.errors import InvalidArgument, Malformed
from shared.resources.kinds import KINDS

DEPLOYMENT = {
    "apiVersion": "worker.gpustack.ai/v1",
    "kind": "ModelDeployment",
    "metadata": {"name": "a"},
    "spec": {
        "model": {"name": "m"},
        "engine": {"name": "Simulated"},
        "roles": [{"name": "server", "instanceType": "x"}],
    },
}
POD = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "command": ["sleep"]}]}}
ARTIFACT = {"metadata": {"name": "m"}, "spec": {"source": {"huggingFace": {"repository": "o/n"}}}}
BACKEND = {
    "metadata": {"name": "b"},
    "spec": {"connection": {"managed": {"leader": {}, "members": [{"capacityPerMember": "8Gi"}]}}},
}


def changed(base, path, value):
    body = copy.deepcopy(base)
    place = body
    for part in path[:-1]:
        place = place[part]
    if isinstance(place, list) and path[-1] == "+":
        place.append(value)
    else:
        place[path[-1]] = value
    return body


def test_fitting_object_passes_without_its_status():
    sent = {**copy.deepcopy(DEPLOYMENT), "status": {"anything": [1]}}

    assert decode(KINDS["ModelDeployment"], sent).body == DEPLOYMENT


@pytest.mark.parametrize(
    ("kind", "base", "path", "value", "error", "field"),
    [
        ("ModelDeployment", DEPLOYMENT, ("spec", "roles", 0, "replicas"), "2", Malformed, "spec.roles[0].replicas"),
        ("ModelDeployment", DEPLOYMENT, ("spec", "roles", 0, "replicas"), 1.5, Malformed, "spec.roles[0].replicas"),
        ("ModelDeployment", DEPLOYMENT, ("spec", "roles", 0, "replicas"), 2.0, Malformed, "spec.roles[0].replicas"),
        ("ModelDeployment", DEPLOYMENT, ("spec", "roles", 0, "replicas"), True, Malformed, "spec.roles[0].replicas"),
        ("ModelDeployment", DEPLOYMENT, ("spec", "roles", 0, "replicas"), -1, InvalidArgument, "spec.roles[0].replicas"),
        ("ModelDeployment", DEPLOYMENT, ("spec", "roles", 0, "replicas"), 1025, InvalidArgument, "spec.roles[0].replicas"),
        ("ModelDeployment", DEPLOYMENT, ("spec", "roles"), None, InvalidArgument, "spec.roles"),
        ("ModelDeployment", DEPLOYMENT, ("spec", "roles"), [], InvalidArgument, "spec.roles"),
        ("ModelDeployment", DEPLOYMENT, ("spec", "roles", "+"), None, InvalidArgument, "spec.roles[1]"),
        ("ModelDeployment", DEPLOYMENT, ("spec", "engine", "version"), 0.3, Malformed, "spec.engine.version"),
        ("ModelDeployment", DEPLOYMENT, ("spec", "engine", "name"), "vllm", InvalidArgument, "spec.engine.name"),
        ("ModelDeployment", DEPLOYMENT, ("spec", "template"), {}, Malformed, "spec.template"),
        ("ModelDeployment", DEPLOYMENT, ("metadata", "labels"), {"a": True}, Malformed, "metadata.labels.a"),
        ("ModelDeployment", DEPLOYMENT, ("metadata", "labels"), {"a": None}, InvalidArgument, "metadata.labels[a]"),
        ("ModelDeployment", DEPLOYMENT, ("metadata", "labels"), ["a"], Malformed, "metadata.labels"),
        ("ModelDeployment", DEPLOYMENT, ("spec",), "text", Malformed, "spec"),
        ("ModelArtifact", ARTIFACT, ("spec", "source", "huggingFace"), None, InvalidArgument, "spec.source"),
        ("ModelArtifact", ARTIFACT, ("spec", "source", "image"), {"reference": "r@sha256:" + "0" * 64}, InvalidArgument, "spec.source"),
        ("ModelArtifact", ARTIFACT, ("spec", "source", "huggingFace", "revision"), 2024, Malformed, "spec.source.huggingFace.revision"),
        ("ModelArtifact", ARTIFACT, ("spec", "source", "huggingFace", "token"), "hf_x", Malformed, "spec.source.huggingFace.token"),
        ("ModelArtifact", ARTIFACT, ("spec", "expectedDigest"), "sha256:" + "A" * 64, InvalidArgument, "spec.expectedDigest"),
        ("KVCacheBackend", BACKEND, ("spec", "connection", "managed", "leader"), None, InvalidArgument, "spec.connection.managed.leader"),
        ("KVCacheBackend", BACKEND, ("spec", "connection", "managed", "members", 0, "capacityPerMember"), "8Gi ", Malformed,
         "spec.connection.managed.members[0].capacityPerMember"),
        ("Pod", POD, ("spec", "containers", 0, "resources"), {"limits": {"nvidia.com/gpu": None}}, InvalidArgument,
         "spec.containers[0].resources.limits[nvidia.com/gpu]"),
        ("Pod", POD, ("spec", "containers", 0, "env"), [{"name": "A", "value": 8080}], Malformed, "spec.containers[0].env[0].value"),
        ("Pod", POD, ("spec", "containers", 0, "command"), "sleep", Malformed, "spec.containers[0].command"),
    ],
)  # fmt: skip
def test_misfit_is_refused_by_its_field(kind, base, path, value, error, field):
    with pytest.raises(error) as caught:
        decode(KINDS[kind], changed(base, path, value))

    assert caught.value.causes[0].field == field


def test_refusal_does_not_echo_the_value():
    with pytest.raises(Malformed) as caught:
        decode(KINDS["ModelArtifact"], changed(ARTIFACT, ("spec", "source", "huggingFace", "token"), "hf_secret"))

    assert "hf_secret" not in str(caught.value.to_dict())


def test_null_of_an_optional_field_is_absent():
    sent = changed(changed(DEPLOYMENT, ("spec", "roles", 0, "command"), None), ("metadata", "creationTimestamp"), None)

    assert decode(KINDS["ModelDeployment"], sent).body == DEPLOYMENT


def test_fields_of_pod_templates_that_we_do_not_know_are_kept():
    sent = changed(POD, ("spec", "containers", 0, "securityContext"), {"runAsUser": 5, "x": None})

    found = decode(KINDS["Pod"], sent).body

    assert found["spec"]["containers"][0]["securityContext"] == {"runAsUser": 5}


@pytest.mark.parametrize(
    ("mode", "warnings"),
    [("Warn", ('unknown field "spec.roles[0].bogus"', 'unknown field "spec.other"')), ("Ignore", ())],
)
def test_unknown_fields_can_be_forgiven(mode, warnings):
    sent = changed(changed(DEPLOYMENT, ("spec", "roles", 0, "bogus"), 1), ("spec", "other"), {"deep": 1})

    found = decode(KINDS["ModelDeployment"], sent, mode)

    assert found.body == DEPLOYMENT
    assert sorted(found.warnings) == sorted(warnings)


def test_forgiving_unknown_fields_forgives_nothing_else():
    sent = changed(changed(DEPLOYMENT, ("spec", "bogus"), 1), ("spec", "roles", 0, "replicas"), "2")

    with pytest.raises(Malformed):
        decode(KINDS["ModelDeployment"], sent, "Warn")


def test_address_fills_in_what_the_url_says():
    body = address(KINDS["ConfigMap"], {"data": {"a": "1"}}, "team", "x")

    assert body == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"namespace": "team", "name": "x"},
        "data": {"a": "1"},
    }


@pytest.mark.parametrize(
    "sent",
    [
        {"apiVersion": "v2"},
        {"kind": "configmap"},
        {"kind": 5},
        {"metadata": {"name": "y"}},
        {"metadata": {"name": 5}},
        {"metadata": {"namespace": "other"}},
        {"metadata": []},
        {"metadata": "x"},
    ],
)
def test_body_that_contradicts_the_url_is_malformed(sent):
    with pytest.raises(Malformed):
        address(KINDS["ConfigMap"], sent, "team", "x")


def test_new_object_names_itself():
    assert address(KINDS["ConfigMap"], {"metadata": {"name": "own"}}, "team", "")["metadata"]["name"] == "own"


def test_namespace_on_a_cluster_wide_object_is_malformed():
    with pytest.raises(Malformed, match="cluster-wide"):
        address(KINDS["Node"], {"metadata": {"namespace": "default"}}, "", "n")


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ({"kind": "modeldeployment", "apiVersion": "worker.gpustack.ai/v1"}, "did you mean ModelDeployment"),
        ({"kind": "ModelDeployment", "apiVersion": "worker.gpustack.ai/v2"}, "worker.gpustack.ai/v1"),
        ({"kind": "Nonsense", "apiVersion": "v1"}, "no kind"),
        ({"kind": "Pod"}, "needs"),
        ({}, "needs"),
        ({"kind": [], "apiVersion": {}}, "needs"),
    ],
)
def test_kind_that_is_not_served_is_refused_with_a_hint(body, word):
    with pytest.raises(Malformed, match=word):
        kind_of(body)


@pytest.mark.parametrize("wrong", [{"replicas": "2"}, {"replicas": -1}, {"bogus": 1}, {"env": [None]}])
def test_refusal_names_the_object_as_kubectl_prints_it(wrong):
    sent = changed(DEPLOYMENT, ("spec", "roles", 0), {**DEPLOYMENT["spec"]["roles"][0], **wrong})

    with pytest.raises((Malformed, InvalidArgument)) as caught:
        decode(KINDS["ModelDeployment"], sent)

    assert caught.value.fields["kind"] == "ModelDeployment"
    assert caught.value.fields["name"] == "a"


def test_sentences_are_ours_not_the_librarys():
    sent = changed(DEPLOYMENT, ("spec", "engine"), {})

    with pytest.raises(InvalidArgument) as missing:
        decode(KINDS["ModelDeployment"], sent)
    with pytest.raises(Malformed) as wrong:
        decode(KINDS["ModelDeployment"], changed(DEPLOYMENT, ("spec", "roles", 0, "replicas"), "2"))

    assert missing.value.message == "spec.engine.name: is required"
    assert wrong.value.message == "spec.roles[0].replicas: must be a valid integer"
