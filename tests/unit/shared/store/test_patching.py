"""A typed write keeps what its version does not know."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from shared.resources.base import Condition, Model, OpenModel, Resource, Status
from shared.store.documents import Document
from shared.store.patching import patched


class Template(OpenModel):
    image: str = ""


class Part(Model):
    name: str
    size: int = 0


class Spec(Model):
    template: Template = Field(default_factory=Template)
    parts: list[Part] = Field(default_factory=list)
    words: list[str] = Field(default_factory=list)
    note: str | None = None


class Thing(Resource):
    spec: Spec = Field(default_factory=Spec)
    status: Status = Field(default_factory=Status)


BODY: dict[str, Any] = {
    "apiVersion": "v9",
    "kind": "Thing",
    "metadata": {"name": "t", "uid": "u", "labels": {"a": "1"}, "newer": True},
    "spec": {
        "template": {"image": "i", "volumes": [1]},
        "parts": [{"name": "x", "size": 1, "color": "red"}, {"name": "y", "size": 2, "color": "blue"}],
        "words": ["a"],
        "note": "n",
        "newer": {"deep": 1},
    },
    "status": {"conditions": [{"type": "Ready", "status": "True", "newer": 1}], "newer": 2},
    "newerTop": 3,
}


def document() -> Document:
    return Document("Thing", "", "t", "u", 7, 1, BODY)


def test_reading_and_writing_back_only_adds_defaults() -> None:
    once = document().patched(document().read(Thing))

    assert holds(once, BODY)
    again = Document("Thing", "", "t", "u", 8, 1, once)
    assert again.patched(again.read(Thing)) == once


def holds(whole: Any, part: Any) -> bool:
    if isinstance(part, dict):
        return all(key in whole and holds(whole[key], value) for key, value in part.items())
    if isinstance(part, list):
        return len(whole) == len(part) and all(holds(w, p) for w, p in zip(whole, part, strict=True))
    return bool(whole == part)


def test_known_fields_change_and_unknown_ones_stay() -> None:
    thing = document().read(Thing)
    thing.spec.parts = [Part(name="y", size=9), Part(name="z")]
    thing.spec.note = None
    thing.metadata.labels = {}
    thing.status.conditions = [Condition(type="Ready", status="False")]

    body = document().patched(thing)

    assert body["spec"]["parts"] == [{"name": "y", "size": 9, "color": "blue"}, {"name": "z", "size": 0}]
    assert "note" not in body["spec"]
    assert body["spec"]["newer"] == {"deep": 1}
    assert body["spec"]["template"]["volumes"] == [1]
    assert "labels" not in body["metadata"]
    assert body["metadata"]["newer"] is True
    assert body["status"]["newer"] == 2
    assert body["status"]["conditions"][0]["newer"] == 1
    assert body["status"]["conditions"][0]["status"] == "False"
    assert body["newerTop"] == 3
    assert BODY["spec"]["note"] == "n"


def test_parts_that_allow_any_field_are_replaced_whole_by_whoever_sent_them() -> None:
    sent = Thing.model_validate({"kind": "Thing", "spec": {"template": {"image": "j", "hostNetwork": True}}})

    body = patched(BODY, sent, open_parts_replaced=True)

    assert body["spec"]["template"] == {"image": "j", "hostNetwork": True}
    assert body["spec"]["newer"] == {"deep": 1}


def test_a_revision_never_enters_a_body() -> None:
    assert "resourceVersion" not in document().patched(document().read(Thing))["metadata"]
