"""The few bodies that kubectl sends as protobuf."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.gateway.domain.protobuf import load_protobuf
from shared.errors import Malformed


def varint(value):
    out = b""
    while True:
        value, low = value >> 7, value & 0x7F
        out += bytes([low | (0x80 if value else 0)])
        if not value:
            return out


def field(number, value):
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


def unknown(kind, raw, version="v1"):
    return b"k8s\x00" + field(1, field(1, version) + field(2, kind)) + field(2, raw) + field(3, "") + field(4, "")


def test_namespace_as_kubectl_sends_it():
    metadata = field(1, "t1") + field(2, "") + field(7, 0) + field(8, b"") + field(11, field(1, "a") + field(2, "b"))

    assert load_protobuf(unknown("Namespace", field(1, metadata) + field(2, b"") + field(3, field(1, "")))) == {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "t1", "generateName": "", "generation": 0, "labels": {"a": "b"}},
        "spec": {},
    }


def test_secret_values_become_base64():
    raw = field(1, field(1, "s")) + field(2, field(1, "k") + field(2, b"\x00\xff")) + field(3, "Opaque") + field(5, 1)

    found = load_protobuf(unknown("Secret", raw))

    assert found["data"] == {"k": base64.b64encode(b"\x00\xff").decode()}
    assert (found["type"], found["immutable"]) == ("Opaque", True)


def test_delete_options_are_read():
    raw = field(1, 30) + field(2, field(1, "uid")) + field(4, "Background") + field(5, "All")

    found = load_protobuf(unknown("DeleteOptions", raw))

    assert found["gracePeriodSeconds"] == 30
    assert found["preconditions"] == {"uid": "uid"}
    assert found["dryRun"] == ["All"]


@pytest.mark.parametrize(
    "raw",
    [
        b"", b"{}", b"k8s\x00", b"k8s\x00\xff\xff", unknown("Pod", b""), unknown("Namespace", b"\x0a\x7f"),
        unknown("Namespace", b"\xff" * 12), unknown("Secret", field(3, b"\xff\xfe")), unknown("Secret", field(5, "text")),
        unknown("Namespace", field(1, 5)), unknown("Namespace", b"\x0b"),
    ],
)  # fmt: skip
def test_anything_else_is_malformed(raw):
    with pytest.raises(Malformed):
        load_protobuf(raw)


@given(st.binary(max_size=60), st.sampled_from(["Namespace", "Secret", "ConfigMap", "DeleteOptions"]))
def test_garbage_is_read_or_refused(raw, kind):
    for body in (raw, b"k8s\x00" + raw, unknown(kind, raw)):
        try:
            load_protobuf(body)
        except Malformed:
            pass
