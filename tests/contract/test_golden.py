"""Golden samples parse for ever; schemas change only by addition."""

import json
from pathlib import Path

import pytest
from pydantic import BaseModel

from tests.contract.samples import MODELS, sample

HERE = Path(__file__).parent


@pytest.mark.parametrize("name", MODELS)
def test_golden_sample_still_parses_and_keeps_its_fields(name):
    golden = json.loads((HERE / "golden" / f"{name}.json").read_text())

    parsed = MODELS[name].model_validate(golden, extra="ignore")

    assert_kept(golden, parsed.model_dump(mode="json", by_alias=True))


def assert_kept(old, new, path=""):
    if isinstance(old, dict):
        for key, value in old.items():
            assert key in new, f"{path}.{key} is gone"
            assert_kept(value, new[key], f"{path}.{key}")
    elif isinstance(old, list):
        assert len(old) == len(new), path
        for index, (a, b) in enumerate(zip(old, new, strict=True)):
            assert_kept(a, b, f"{path}[{index}]")
    else:
        assert old == new, path


@pytest.mark.parametrize("name", MODELS)
def test_schema_is_committed_and_only_grew(name):
    committed = json.loads((HERE / "schemas" / f"{name}.json").read_text())
    now = MODELS[name].model_json_schema(by_alias=True)

    differences = breaking(committed, now, committed, now)

    assert not differences, differences
    assert now == committed, "the schema grew: run `make schemas` with --grow and commit it"


def breaking(old, new, old_root, new_root, path="", seen=frozenset()):
    """Field paths that a reader or writer of the old schema would trip over."""
    old, old_ref = resolve(old, old_root)
    new, _ = resolve(new, new_root)
    if old_ref in seen:
        return []
    seen = seen | {old_ref} if old_ref else seen
    out = []
    for name, prop in old.get("properties", {}).items():
        if name not in new.get("properties", {}):
            out.append(f"{path}.{name} was removed")
        else:
            out += breaking(prop, new["properties"][name], old_root, new_root, f"{path}.{name}", seen)
    out += [f"{path}.{n} became required" for n in set(new.get("required", ())) - set(old.get("required", ()))]
    if old.get("type") != new.get("type"):
        out.append(f"{path}: type {old.get('type')} became {new.get('type')}")
    if "enum" in old and not set(old["enum"]) <= set(new.get("enum", old["enum"])):
        out.append(f"{path}: enum was narrowed")
    if "items" in old:
        out += breaking(old["items"], new.get("items", {}), old_root, new_root, f"{path}[]", seen)
    return out


def resolve(node, root):
    ref = node.get("$ref")
    if ref is None:
        return node, None
    return root["$defs"][ref.rsplit("/", 1)[1]], ref


def test_the_additive_test_itself_sees_a_removed_field_and_a_retyped_one():
    class Before(BaseModel):
        a: int
        b: str = ""

    class After(BaseModel):
        a: str
        c: int

    found = breaking(Before.model_json_schema(), After.model_json_schema(), {}, {})

    assert any("b was removed" in f for f in found)
    assert any("a: type integer became string" in f for f in found)
    assert any("c became required" in f for f in found)


@pytest.mark.parametrize("name", MODELS)
def test_generated_sample_round_trips(name):
    body = sample(MODELS[name])

    parsed = MODELS[name].model_validate(body)

    assert MODELS[name].model_validate(parsed.model_dump(mode="json", by_alias=True)) == parsed
