"""The resource verbs: what they send, how answers look, and one sentence for every refusal."""

from __future__ import annotations

import json

import pytest

from gpubus.chat import stream
from gpubus.explain import describe, logs, why
from gpubus.refusal import Refusal
from gpubus.resources import apply, delete, get
from gpubus.rest import Api
from tests.integration.up.canned_gateway import WORKER, canned_gateway, status, table

PODS = "/api/v1/namespaces/default/pods"
DEPLOYMENTS = f"/apis/{WORKER}/v1/namespaces/default/modeldeployments"


@pytest.fixture
def gateway(monkeypatch):
    with canned_gateway({}) as canned:
        monkeypatch.setenv("GPUBUS_URL", canned.url)
        monkeypatch.setenv("GPUBUS_TOKEN", "secret")
        yield canned


def show(*words: str, namespace: str = "default", output: str = "", watch: bool = False) -> None:
    get((words[0], words[1] if len(words) > 1 else ""), namespace, output, watch=watch, data_dir="")


def test_get_prints_the_servers_table(gateway, capsys):
    gateway.answers["GET", PODS] = 200, table(("smollm2-0", "1/1", "vm"), ("b", "0/1", "vm"))
    show("po")
    assert capsys.readouterr().out == "NAME        READY\nsmollm2-0   1/1\nb           0/1\n"
    method, path, _, headers, _ = gateway.asked[-1]
    assert (method, path, headers["Authorization"]) == ("GET", PODS, "Bearer secret")
    assert "as=Table" in headers["Accept"]


def test_get_wide_and_of_all_namespaces_has_more_columns(gateway, capsys):
    gateway.answers["GET", "/api/v1/pods"] = 200, table(("a", "1/1", "vm"))
    show("pods", namespace="", output="wide")
    assert capsys.readouterr().out == "NAMESPACE   NAME   READY   NODE\ndefault     a      1/1     vm\n"


def test_get_of_several_kinds_names_each(gateway, capsys):
    gateway.answers["GET", PODS] = 200, table(("a", "1/1", "vm"))
    gateway.answers["GET", DEPLOYMENTS] = 200, table(("m", "1", ""))
    show("pods,md")
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        ["NAME", "READY"],
        ["pod/a", "1/1"],
        [],
        ["NAME", "READY"],
        [f"modeldeployment.{WORKER}/m", "1"],
        [],
    ]


def test_get_as_json_yaml_and_names(gateway, capsys):
    body = {"kind": "Pod", "metadata": {"name": "a", "namespace": "default"}}
    gateway.answers["GET", f"{PODS}/a"] = 200, body
    show("pod/a", output="json")
    assert json.loads(capsys.readouterr().out) == body
    show("pod", "a", output="yaml")
    assert capsys.readouterr().out == "kind: Pod\nmetadata:\n  name: a\n  namespace: default\n"
    show("pod", "a", output="name")
    assert capsys.readouterr().out == "pod/a\n"


def test_get_of_nothing_says_so(gateway, capsys):
    gateway.answers["GET", PODS] = 200, table()
    show("pods")
    assert capsys.readouterr().err == "No pods found in default.\n"
    with pytest.raises(Refusal, match="pods/x not found"):
        show("pods", "x")


def test_watch_prints_what_is_there_and_then_changes(gateway, capsys):
    gateway.answers["GET", PODS] = 200, table(("a", "0/1", "vm"))
    gateway.answers["GET", f"{PODS}?watch"] = (
        200,
        [
            {"type": "MODIFIED", "object": table(("a", "1/1", "vm"))},
            {"type": "BOOKMARK", "object": {}},
            {"type": "ERROR", "object": status(410, "too old resource version")},
        ],
    )
    with pytest.raises(Refusal, match="too old resource version; start it again"):
        show("pods", watch=True)
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["NAME", "READY"],
        ["a", "0/1"],
        ["a", "1/1"],
    ]
    assert gateway.asked[-1][2] == {"watch": "true", "resourceVersion": "7"}


def test_apply_reports_each_document_on_its_own(gateway, capsys, tmp_path):
    gateway.answers["PATCH", f"{DEPLOYMENTS}/good"] = 201, {}
    gateway.answers["PATCH", f"{DEPLOYMENTS}/known"] = 200, {}
    gateway.answers["PATCH", f"{DEPLOYMENTS}/bad"] = 422, status(422, "spec.engine.name: 'Fast' is not one of ...")
    documents = [
        f"apiVersion: {WORKER}/v1\nkind: ModelDeployment\nmetadata: {{name: {name}}}\n"
        for name in ("good", "bad", "known")
    ]
    documents.append("apiVersion: v1\nkind: Unknown\nmetadata: {name: x}\n")
    (tmp_path / "all.yaml").write_text("---\n".join(documents))

    assert apply([str(tmp_path / "all.yaml")], "", dry_run=False, data_dir="") == 1

    out, err = capsys.readouterr()
    assert out == f"modeldeployment.{WORKER}/good created\nmodeldeployment.{WORKER}/known applied\n"
    assert "spec.engine.name: 'Fast' is not one of ..." in err
    assert "no kind Unknown in v1 is served" in err
    sent = [one for one in gateway.asked if one[0] == "PATCH"]
    assert [one[4]["metadata"]["name"] for one in sent] == ["good", "bad", "known"]
    assert {one[3]["Content-Type"] for one in sent} == {"application/apply-patch+yaml"}
    assert {one[2]["fieldManager"] for one in sent} == {"gpubus"}


def test_a_file_with_an_error_is_not_applied_at_all(gateway, tmp_path):
    (tmp_path / "bad.yaml").write_text("kind: A\n---\nkind: B\nkind: C\n")
    with pytest.raises(Refusal, match=r"bad\.yaml"):
        apply([str(tmp_path / "bad.yaml")], "", dry_run=False, data_dir="")
    (tmp_path / "empty.yaml").write_text("# nothing\n")
    with pytest.raises(Refusal, match="there is no document in it"):
        apply([str(tmp_path / "empty.yaml")], "", dry_run=False, data_dir="")
    assert not [one for one in gateway.asked if one[0] == "PATCH"]


def test_delete_by_name_and_by_file(gateway, capsys, tmp_path):
    for name in ("a", "b"):
        gateway.answers["DELETE", f"{PODS}/{name}"] = 200, {}
    assert delete(("pod", "a", "b"), [], "", "") == 0
    assert delete(("pod/a", "po/b"), [], "default", "") == 0
    assert delete(("pod", "gone"), [], "", "") == 1
    out, err = capsys.readouterr()
    assert out == "pod/a deleted\npod/b deleted\n" * 2
    assert err == f"{PODS}/gone not found\n"
    (tmp_path / "two.yaml").write_text(
        "".join(f"---\napiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\n" for name in "ab")
    )
    assert delete((), [str(tmp_path / "two.yaml")], "", "") == 0
    assert capsys.readouterr().out == "pod/b deleted\npod/a deleted\n"
    for words in ((), ("pod",)):
        with pytest.raises(Refusal, match=r"^Say w"):
            delete(words, [], "", "")


def test_describe_shows_spec_conditions_and_events(gateway, capsys):
    condition = {
        "type": "Ready",
        "status": "False",
        "reason": "Waiting",
        "message": "no capacity",
        "lastTransitionTime": "t",
    }
    gateway.answers["GET", f"{DEPLOYMENTS}/m"] = 200, {
        "apiVersion": f"{WORKER}/v1", "kind": "ModelDeployment", "metadata": {"name": "m", "namespace": "default", "labels": {"a": "b"}},
        "spec": {"engine": {"name": "LlamaCpp"}}, "status": {"phase": "Waiting", "conditions": [condition]},
    }  # fmt: skip
    event = {"lastTimestamp": "t2", "type": "Normal", "reason": "Applied", "message": "seen"}
    gateway.answers["GET", "/api/v1/namespaces/default/events"] = 200, {"items": [event]}
    describe("md", "m", "default", "")
    out = capsys.readouterr().out
    for part in (
        "Name:         m",
        "Labels:       a=b",
        "    name: LlamaCpp",
        "  Ready   False    Waiting   t       no capacity",
        "Applied   seen",
    ):
        assert part in out


def test_why_finds_the_workloads_of_a_deployment(gateway, capsys, tmp_path):
    held = {"type": "QuotaReserved", "status": "False", "reason": "NoCapacity", "message": "needs 2 cards"}
    workload = {
        "metadata": {"name": "m-server-0", "namespace": "default", "ownerReferences": [{"name": "m"}]},
        "spec": {"queueName": "q"}, "status": {"conditions": [held]},
    }  # fmt: skip
    gateway.answers["GET", "/apis/kueue.x-k8s.io/v1beta2/namespaces/default/workloads"] = 200, {"items": [workload]}
    why("m", "default", "")
    assert capsys.readouterr().out == "default/m-server-0 waits at q (NoCapacity): needs 2 cards\n"
    nodes = [{"node": "a", "fits": False, "reason": "0 of 2 cards free"}, {"node": "b", "fits": True, "score": 0.5}]
    explanation = "/apis/kueue.x-k8s.io/v1beta2/namespaces/default/workloads/m-server-0/explain"
    gateway.answers["GET", explanation] = 200, {"queuePosition": 3, "nodes": nodes}
    why("m", "default", "")
    assert [line.split(maxsplit=1)[1] for line in capsys.readouterr().out.splitlines()[1:]] == [
        "3 in its queue", "no 0 of 2 cards free", "fits (score 0.50)",
    ]  # fmt: skip
    with pytest.raises(Refusal, match="There is no workload other in namespace default"):
        why("other", "default", "")


def test_logs_are_passed_on_line_by_line(gateway, capsys):
    gateway.answers["GET", f"{PODS}/a/log"] = 200, "one\ntwo\n"
    logs("pod/a", "default", follow=True, previous=False, lines=5, data_dir="")
    assert capsys.readouterr().out == "one\ntwo\n"
    assert gateway.asked[-1][2] == {"tailLines": "5", "follow": "true"}


def test_a_streamed_answer_is_put_together(gateway):
    chunks = [{"choices": [{"delta": {"content": part}}]} for part in ("The capital ", "is Paris.")]
    gateway.answers["POST", "/v1/chat/completions"] = (
        200,
        "".join(f"data: {json.dumps(one)}\n\n" for one in chunks) + "data: [DONE]\n\n",
    )
    said = [{"role": "user", "content": "capital?"}]
    assert "".join(stream(Api(gateway.url, "t"), "m", said, 16)) == "The capital is Paris."
    assert gateway.asked[-1][4] == {"model": "m", "messages": said, "stream": True, "max_tokens": 16}
    gateway.answers["POST", "/v1/chat/completions"] = 404, {"error": {"message": "there is no model m"}}
    with pytest.raises(Refusal, match="there is no model m"):
        list(stream(Api(gateway.url, "t"), "m", said))
