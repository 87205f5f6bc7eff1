"""Label and field selectors as kubectl sends them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.gateway.domain.selectors import field_selector, label_selector, selected_name
from shared.errors import Malformed


@pytest.mark.parametrize(
    ("text", "labels", "taken"),
    [
        ("a=1", {"a": "1"}, True), ("a=1", {"a": "2"}, False), ("a==1", {"a": "1"}, True), ("a!=1", {}, True),
        ("a!=1", {"a": "1"}, False), ("a=", {"a": ""}, True), ("a=", {}, False), ("a", {"a": "x"}, True), ("a", {}, False),
        ("!a", {}, True), ("!a", {"a": "1"}, False), ("a in (1,2)", {"a": "2"}, True), ("a in (1, 2)", {"a": "3"}, False),
        ("a notin (1,2)", {}, True), ("a notin (1,2)", {"a": "1"}, False), ("a=1,b=2", {"a": "1", "b": "2"}, True),
        ("a=1,b=2", {"a": "1"}, False), ("x.y/z-w in (p),!q", {"x.y/z-w": "p"}, True), (" a = 1 ", {"a": "1"}, True),
    ],
)  # fmt: skip
def test_label_selector_takes_what_kubernetes_takes(text, labels, taken):
    selector = label_selector(text)

    assert selector is not None
    assert selector(labels) is taken


def test_empty_selector_takes_everything():
    assert label_selector("") is None
    assert field_selector(" ", "Pod") is None


@pytest.mark.parametrize(
    "text",
    ["=1", "a=1,", "a in 1,2", "a in (1", "a=1=2", "a b", "a>1", "a in (b c)", "ä=1", "a=" + "x" * 64, "a" * 5000],
)
def test_label_selector_that_cannot_be_read_is_malformed(text):
    with pytest.raises(Malformed):
        label_selector(text)


@pytest.mark.parametrize(
    ("kind", "text", "taken"),
    [
        ("Pod", "metadata.name=p", True), ("Pod", "metadata.name!=p", False), ("Pod", "spec.nodeName=n1", True),
        ("Pod", "spec.nodeName=n2", False), ("Pod", "spec.nodeName!=n2,metadata.namespace==d", True),
        ("Event", "involvedObject.kind=Pod,involvedObject.uid=u,type=Warning", True), ("Event", "source=deployer", True),
        ("Event", "reason=Other", False), ("Node", "spec.unschedulable=true", True), ("Secret", "type=Opaque", False),
    ],
)  # fmt: skip
def test_field_selector_reads_the_object(kind, text, taken):
    body = {
        "metadata": {"name": "p", "namespace": "d"},
        "spec": {"nodeName": "n1", "unschedulable": True},
        "involvedObject": {"kind": "Pod", "uid": "u"},
        "type": "Warning",
        "reason": "PodFailed",
        "source": {"component": "deployer"},
    }
    selector = field_selector(text, kind)

    assert selector is not None
    assert selector(body) is taken


@pytest.mark.parametrize("text", ["spec.image=x", "metadata.labels.a=b", "name", "=", "metadata.name"])
def test_field_that_cannot_be_selected_by_is_refused(text):
    with pytest.raises(Malformed):
        field_selector(text, "Pod")


@pytest.mark.parametrize(
    ("text", "name"), [("metadata.name=x", "x"), ("a=b,metadata.name==y", "y"), ("metadata.name!=x", None), ("", None)]
)
def test_name_is_found_in_a_field_selector(text, name):
    assert selected_name(text) == name


@given(st.text(max_size=30))
def test_any_selector_is_read_or_refused(text):
    for read in (label_selector, lambda t: field_selector(t, "Pod")):
        try:
            selector = read(text)
        except Malformed:
            continue
        if selector is not None:
            selector({})
