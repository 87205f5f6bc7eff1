"""What people read: facts, tables, ages, reasons, errors; and what their words mean."""

from __future__ import annotations

import json

import pytest

from gpubus.chat import _pieces
from gpubus.events import filter_of
from gpubus.explain import sentence
from gpubus.facts import read, size
from gpubus.kinds import ServedKind, named, of_document
from gpubus.refusal import Refusal
from gpubus.resources import documents, placed
from gpubus.rest import Api, connect, sentence_of
from gpubus.simulate import questions
from gpubus.terminal import age, table

WORKER = "worker.gpustack.ai"
KINDS = [
    ServedKind("", "v1", "pods", "Pod", "pod", True, ("po",), ("all",)),
    ServedKind("", "v1", "nodes", "Node", "node", False, ("no",)),
    ServedKind(WORKER, "v1", "modeldeployments", "ModelDeployment", "modeldeployment", True, ("md",), ("all",)),
]


@pytest.mark.parametrize("word", ["md", "modeldeployments", "ModelDeployment", "modeldeployments.worker.gpustack.ai"])
def test_a_kind_has_several_names(word):
    assert [kind.kind for kind in named(KINDS, word)] == ["ModelDeployment"]


def test_a_category_means_all_its_kinds_and_an_unknown_word_lists_what_there_is():
    assert [kind.kind for kind in named(KINDS, "all")] == ["Pod", "ModelDeployment"]
    with pytest.raises(Refusal, match="modeldeployments, nodes, pods"):
        named(KINDS, "deployments")


def test_paths_follow_the_kubernetes_api():
    pod, node, deployment = KINDS
    assert pod.path("default", "a b", "log") == "/api/v1/namespaces/default/pods/a%20b/log"
    assert node.path("", "vm") == node.path("default", "vm") == "/api/v1/nodes/vm"
    assert deployment.path("") == "/apis/worker.gpustack.ai/v1/modeldeployments"
    assert deployment.label == "modeldeployment.worker.gpustack.ai"


def test_an_unserved_document_is_refused_with_a_guess():
    with pytest.raises(Refusal, match=r"did you mean worker.gpustack.ai/v1 ModelDeployment\?"):
        of_document(KINDS, {"apiVersion": "worker.gpustack.ai/v1alpha1", "kind": "ModelDeployment"})
    with pytest.raises(Refusal, match="no kind"):
        of_document(KINDS, {})


@pytest.mark.parametrize(
    ("own", "flag", "space"), [(None, "", "default"), ("a", "", "a"), (None, "b", "b"), ("a", "a", "a")]
)
def test_a_documents_namespace_comes_first(own, flag, space):
    metadata = {"name": "x"} | ({"namespace": own} if own else {})
    assert placed(KINDS, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}, flag)[1:] == (space, "x")


def test_two_namespaces_or_no_name_are_refused():
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "namespace": "a"}}
    with pytest.raises(Refusal, match="is for namespace a, but -n says b"):
        placed(KINDS, body, "b")
    for metadata in (None, {}, {"name": 3}, "x"):
        with pytest.raises(Refusal, match=r"metadata\.name is missing"):
            placed(KINDS, body | {"metadata": metadata}, "")


def test_documents_are_read_in_order_with_their_place(tmp_path):
    (tmp_path / "b.yaml").write_text("kind: A\n---\nkind: B\n")
    (tmp_path / "a.json").write_text('{"kind": "C"}')
    (tmp_path / "notes.txt").write_text("not read")
    found = [(place.rpartition("/")[2], body["kind"]) for place, body in documents([str(tmp_path)])]
    assert found == [("a.json:1", "C"), ("b.yaml:1", "A"), ("b.yaml:2", "B")]


def test_a_bad_file_is_refused_with_its_name(tmp_path):
    with pytest.raises(Refusal, match=r"none\.yaml cannot be read"):
        list(documents([str(tmp_path / "none.yaml")]))
    (tmp_path / "twice.yaml").write_text("kind: A\nkind: B\n")
    with pytest.raises(Refusal, match=r"twice.yaml: .*kind"):
        list(documents([str(tmp_path / "twice.yaml")]))


def test_clients_prefer_the_environment_unless_a_data_dir_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("GPUBUS_URL", "http://there/")
    monkeypatch.setenv("GPUBUS_TOKEN", "t")
    assert connect() == Api("http://there", "t")
    with pytest.raises(Refusal, match="No stack was ever started"):
        connect(str(tmp_path))
    (tmp_path / "env").write_text("export GPUBUS_URL='http://here'\nexport GPUBUS_TOKEN='s'\n")
    assert connect(str(tmp_path)) == Api("http://here", "s")
    assert "'s'" not in repr(Api("http://here", "s"))


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"kind": "Status", "message": "pods x not found"}, "pods x not found"),
        ({"error": {"message": "no such model"}}, "no such model"),
        ({"error": "plain"}, "plain"),
        ("<html>", "the gateway answered 502 without saying why"),
    ],
)
def test_errors_of_both_faces_are_sentences(answer, said):
    assert sentence_of(502, answer) == said


def fact(kind: str, /, **data: object) -> bytes:
    return json.dumps({"type": f"gpubus.{kind}.v1", "time": "2026-11-30T12:34:56Z", "data": data}).encode()


@pytest.mark.parametrize(
    ("raw", "about", "text"),
    [
        (fact("device.found", node="n", deviceId="d", product="nvidia-a10g", memoryMib=24576), "n/d", "nvidia-a10g, 24 GiB"),
        (fact("pool.formed", name="p", nodes=1, cores=2), "p", "1 node, 2 cores"),
        (fact("artifact.ready", namespace="a", name="m", node="n", sizeBytes=98 * 2**20), "a/m", "98.0 MiB on n"),
        (fact("replica.failed", namespace="a", name="m-0", node="n", exitCode=3, message="no"), "a/m-0", "on n, exit code 3: no"),
        (fact("workload.held", namespace="a", name="w", message="needs 2"), "a/w", "needs 2"),
        (fact("deployment.available", namespace="a", name="m", model="m", message="1 of 1 ready"), "a/m", "serves m: 1 of 1 ready"),
        (fact("object-gateway.applied", kind="Secret", namespace="a", name="s", generation=2), "Secret a/s", "generation 2"),
        (fact("something.new", name="x", colour="blue", empty=""), "x", "colour=blue"),
    ],
)  # fmt: skip
def test_a_fact_is_one_line(raw, about, text):
    line = read(raw)
    assert (line.time, line.about, line.text) == ("12:34:56", about, text)


@pytest.mark.parametrize(
    "raw", [b"", b"{}", b"[]", b'{"type": "other", "data": {}}', b'{"type": "gpubus.a.b.v1", "data": 3}']
)
def test_what_is_no_fact_is_not_shown_as_one(raw):
    assert read(raw) is None


def test_sizes_ages_and_tables():
    assert [size(count) for count in (2048, 5 * 2**20, 3 * 2**30)] == ["2 KiB", "5.0 MiB", "3.0 GiB"]
    assert [age(seconds) for seconds in (0, 59, 61, 3600, 90061, -1)] == ["0s", "59s", "1m1s", "1h", "1d1h", "0s"]
    assert table(("A", "LONG"), [("xyz", "1"), ("", "2")]) == "A     LONG\nxyz   1\n      2"


@pytest.mark.parametrize(
    ("word", "subject"),
    [
        ("", "gpubus.evt.>"),
        ("workload", "gpubus.evt.workload.>"),
        ("workload.admitted", "gpubus.evt.workload.admitted.>"),
        ("gpubus.tel.>", "gpubus.tel.>"),
    ],
)
def test_short_subjects_mean_facts(word, subject):
    assert filter_of(word) == subject


def test_stream_pieces_are_texts_and_an_error_in_the_middle_is_refused():
    assert list(_pieces({"choices": [{"delta": {"content": "Pa"}}, {"delta": {"role": "assistant"}}]})) == ["Pa"]
    assert list(_pieces([])) == []
    with pytest.raises(Refusal, match="broke off: engine gone"):
        list(_pieces({"error": {"message": "engine gone"}}))


def workload(**status: object) -> dict[str, object]:
    return {"metadata": {"namespace": "a", "name": "w"}, "spec": {"queueName": "q"}, "status": status}


def test_a_workloads_state_in_words():
    held = {"type": "QuotaReserved", "status": "False", "reason": "NoCapacity", "message": "needs 2 cards, 1 is free"}
    assert sentence(workload(conditions=[held])) == "a/w waits at q (NoCapacity): needs 2 cards, 1 is free"
    assert "has not been looked at yet" in sentence(workload())
    assigned = {"nodeName": "n", "pool": "p", "devices": ["d1", "d2"]}
    assert (
        sentence(workload(admission={"podSetAssignments": [assigned]}))
        == "a/w is admitted: node n, devices d1, d2 of p."
    )
    done = {"type": "Finished", "status": "True", "reason": "Succeeded"}
    assert (
        sentence(workload(conditions=[done], admission={"podSetAssignments": [assigned]}))
        == "a/w has finished (Succeeded)."
    )


def test_a_deployment_asks_for_what_its_roles_need():
    role = {
        "name": "server",
        "replicas": 2,
        "instanceType": "gpustack--nvidia-a10g-linux-amd64",
        "resources": {"accelerator": 2, "cpu": "4"},
    }
    body = {"kind": "ModelDeployment", "metadata": {"name": "m"}, "spec": {"roles": [role]}}
    ((about, space, spec),) = questions(body, "default")
    assert (about, space) == ("m/server x 2", "default")
    assert spec["queueName"].startswith("gpustack-fnv64-")
    (pods,) = spec["podSets"]
    assert pods["count"] == 2
    assert pods["template"]["spec"]["containers"][0]["resources"]["limits"] == {"cpu": "4", "nvidia.com/gpu": "2"}
    assert list(questions({"kind": "Secret"}, "default")) == []
