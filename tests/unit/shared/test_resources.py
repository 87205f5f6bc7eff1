from datetime import UTC, datetime

import pytest
from pydantic import ValidationError

from shared.errors import InvalidArgument, Malformed
from shared.resources.base import Condition, from_validation, read_tolerant, set_condition
from shared.resources.core import Pod
from shared.resources.kinds import KINDS
from shared.resources.pool import entrance

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LATER = datetime(2026, 1, 2, tzinfo=UTC)


def a_pod(**extra):
    return {"spec": {"containers": [{"name": "a", "stdin": True}], "dnsPolicy": "Default"}, **extra}


def test_stored_fields_of_a_newer_version_are_ignored_and_open_parts_keep_theirs():
    pod = read_tolerant(Pod, a_pod(status={"mood": "fine"}, extra=1))

    assert pod.to_json()["spec"]["dnsPolicy"] == "Default"
    assert pod.to_json()["spec"]["containers"][0]["stdin"] is True
    assert "mood" not in pod.to_json()["status"]


def test_a_wrong_value_in_a_stored_document_is_still_an_error():
    with pytest.raises(ValidationError):
        read_tolerant(Pod, {"spec": {"containers": []}})


@pytest.mark.parametrize(
    ("spec", "error", "field"),
    [
        ({"source": {}}, InvalidArgument, "spec.source"),
        (
            {"source": {"huggingFace": {"repository": "a/b", "revision": 2024}}},
            Malformed,
            "spec.source.huggingFace.revision",
        ),
        (
            {"source": {"huggingFace": {"repository": "https://x/y"}}},
            InvalidArgument,
            "spec.source.huggingFace.repository",
        ),
        ({"source": {"huggingFace": {"repository": "a/b", "token": "x"}}}, Malformed, "spec.source.huggingFace.token"),
        (
            {"source": {"huggingFace": {"repository": "a/b"}}, "allowPatterns": [""]},
            InvalidArgument,
            "spec.allowPatterns[0]",
        ),
    ],
    ids=["no-source", "number-as-revision", "url", "unknown-field", "empty-pattern"],
)
def test_bad_input_names_its_field(spec, error, field):
    with pytest.raises(ValidationError) as caught:
        KINDS["ModelArtifact"].model.model_validate({"spec": spec})

    ours = from_validation(caught.value)

    assert type(ours) is error
    assert field in [c.field for c in ours.causes]


def test_a_condition_moves_its_time_only_when_its_status_moves():
    first = set_condition([], Condition(type="Ready", status="False", reason="A"), NOW)
    second = set_condition(first, Condition(type="Ready", status="False", reason="B"), LATER)
    third = set_condition(second, Condition(type="Ready", status="True", reason="C"), LATER)

    assert second[0].last_transition_time == NOW
    assert third[0].last_transition_time == LATER


@pytest.mark.parametrize(
    ("name", "hexes"),
    [
        ("gpustack--nvidia-a10g-linux-amd64", "c4680bb149644f1c"),
        ("gpustack--generic-linux-amd64", "3b93966fd73eb9ec"),
        ("gpustack--nvidia-tesla-t4-linux-amd64", "6b371caa2da0b799"),
        ("gpustack--nvidia-h100-80gb-hbm3-linux-amd64", "e4768a65ca0ce96b"),
    ],
)
def test_entrance_is_the_documented_one(name, hexes):
    assert entrance(name) == f"gpustack-fnv64-{hexes}"
