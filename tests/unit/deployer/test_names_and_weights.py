"""Names that are computed, and which file of some weights an engine loads."""

import pytest

from services.deployer.domain.names import digest, pod_workload_uid, replica_name, workload_uid
from services.deployer.domain.weights import gguf_models, gguf_problem


def test_an_attempt_has_its_own_name_and_asking_twice_is_asking_once():
    assert replica_name("m", "server", 0) == "m-server-r0"
    assert replica_name("m", "server", 0, 2) == "m-server-r0-2"
    base = ("owner", "server", 0, 0, "ask")
    assert workload_uid(*base) == workload_uid(*base)
    others = {workload_uid(*other) for other in [("x", *base[1:]), ("owner", "server", 1, 0, "ask"), ("owner", "server", 0, 1, "ask"), (*base[:4], "b")]}  # fmt: skip
    assert len({workload_uid(*base), *others, pod_workload_uid("owner")}) == 6


def test_a_digest_does_not_depend_on_the_order_of_keys():
    assert digest({"a": 1, "b": [1, 2]}) == digest({"b": [1, 2], "a": 1}) != digest({"a": 1, "b": [2, 1]})


@pytest.mark.parametrize(
    ("paths", "models"),
    [
        (["m.gguf", "README.md"], ["m.gguf"]),
        (["q4/M.GGUF"], ["q4/M.GGUF"]),
        (["m-00001-of-00003.gguf", "m-00002-of-00003.gguf", "m-00003-of-00003.gguf"], ["m-00001-of-00003.gguf"]),
        (["m.gguf", "mmproj-m-f16.gguf"], ["m.gguf"]),
        (["b.gguf", "a.gguf"], ["a.gguf", "b.gguf"]),
        ([], []),
    ],
)
def test_models_of_a_manifest(paths, models):
    assert gguf_models(paths) == models


def test_what_llamacpp_cannot_serve_is_said_with_the_way_out():
    assert gguf_problem(["m.gguf"]) == ""
    assert "no *.gguf" in gguf_problem(["model.safetensors"])
    many = gguf_problem([f"q{n}.gguf" for n in range(8)])
    assert "8 *.gguf files" in many
    assert many.count(".gguf,") <= 5
    assert "allowPatterns" in many
