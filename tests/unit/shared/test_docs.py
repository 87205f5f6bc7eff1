"""The generated documentation is complete and refers to nothing missing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from shared import subjects
from shared.bus.docs import asyncapi, events_page, write
from shared.messages import catalog


def references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        for value in node.values():
            yield from references(value)
    elif isinstance(node, list):
        for value in node:
            yield from references(value)


@pytest.mark.parametrize("service", subjects.SERVICES)
def test_every_reference_resolves_and_every_operation_has_a_channel(service: str):
    document = asyncapi(service)

    for reference in references(document):
        here: Any = document
        for part in reference.removeprefix("#/").split("/"):
            here = here[part]
    assert document["asyncapi"] == "3.0.0"
    sent = {name.removeprefix("send") for name in document["operations"] if name.startswith("send")}
    assert sent == {entry.message.__name__ for entry in catalog.facts_of(service)}


def test_the_page_names_every_message_with_when_and_subject():
    page = events_page()

    for entry in catalog.ENTRIES:
        assert f"### {entry.message.__name__}\n" in page
    assert page.count("* payload: ") == len(catalog.ENTRIES)
    assert "FACTS_SCHEDULER" in page


def test_the_files_are_yaml_and_the_same_every_time(tmp_path: Path):
    first = {path: path.read_text() for path in write(tmp_path)}
    second = {path: path.read_text() for path in write(tmp_path)}

    assert first == second
    for path, text in first.items():
        if path.suffix == ".yaml":
            assert yaml.safe_load(text)["info"]["title"].startswith("gpubus ")
