"""Names and labels as Kubernetes takes them."""

from __future__ import annotations

import pytest

from shared.resources.base import Metadata, OwnerReference
from shared.store.names import LABEL, SUBDOMAIN, metadata_causes


@pytest.mark.parametrize("name", ["a", "a-b.c", "0", "a" * 253, "gpustack--nvidia-a10g-linux-amd64", "xn--a.b-c.d"])
def test_subdomains_are_taken(name: str) -> None:
    assert SUBDOMAIN.problem(name) == ""


@pytest.mark.parametrize("name", ["", "A", "-a", "a-", ".a", "a..b", "a_b", "a b", "a\n", "é", "a" * 254, "a/b"])
def test_anything_else_is_not(name: str) -> None:
    assert SUBDOMAIN.problem(name)


def test_labels_have_no_dots_and_63_characters() -> None:
    assert LABEL.problem("a" * 63) == ""
    assert LABEL.problem("a" * 64)
    assert LABEL.problem("a.b")


def fields(**metadata: object) -> list[str]:
    known = {"name": "a", "namespace": "n"}
    return [cause.field for cause in metadata_causes(Metadata(**(known | metadata)), SUBDOMAIN, namespaced=True)]  # type: ignore[arg-type]


def test_good_metadata_has_no_cause() -> None:
    good = {"a": "b", "gpubus.io/x_y.z": "", "k8s.io/A": "A-1"}
    assert fields(labels=good, annotations={"Any.Case/x": "free text \n"}, finalizers=["a/b"]) == []


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({"labels": {"a": "-b"}}, ["metadata.labels[a]"]),
        ({"labels": {"a": "b" * 64}}, ["metadata.labels[a]"]),
        ({"labels": {"": "b"}}, ["metadata.labels"]),
        ({"labels": {"a/b/c": "d"}}, ["metadata.labels"]),
        ({"labels": {"/b": "d"}}, ["metadata.labels"]),
        ({"labels": {"a" * 64: "d"}}, ["metadata.labels"]),
        ({"annotations": {"a b": "c"}}, ["metadata.annotations"]),
        ({"annotations": {"a": "c" * 262_145}}, ["metadata.annotations"]),
        ({"finalizers": ["-"]}, ["metadata.finalizers"]),
        ({"namespace": ""}, ["metadata.namespace"]),
        ({"namespace": "a.b"}, ["metadata.namespace"]),
        ({"owner_references": [OwnerReference(kind="Pod", name="p")]}, ["metadata.ownerReferences[0]"]),
    ],
)
def test_each_wrong_part_names_its_field(metadata: dict[str, object], expected: list[str]) -> None:
    assert fields(**metadata) == expected


def test_a_cluster_wide_object_has_no_namespace() -> None:
    causes = list(metadata_causes(Metadata(name="a", namespace="n"), SUBDOMAIN, namespaced=False))
    assert [cause.reason for cause in causes] == ["FieldValueForbidden"]
