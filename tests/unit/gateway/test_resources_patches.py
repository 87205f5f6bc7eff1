"""Merge, JSON and strategic patches: the standards' own examples, and what must be refused."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.gateway.domain.merging import merge_keys
from services.gateway.domain.patches import json_patch, merge_patch
from services.gateway.domain.strategic import strategic_merge
from services.gateway.routes import openapi
from services.gateway.routes.discovery import groups
from shared.errors import InvalidArgument, Malformed
from shared.resources.kinds import KINDS

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab/~", max_size=2), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"a": "foo"}, "bar", "bar"),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_merge_patch_follows_rfc_7396(target, patch, result):
    assert merge_patch(target, patch) == result


@given(JSON, JSON)
def test_merge_patch_twice_is_merge_patch_once(target, patch):
    once = merge_patch(target, patch)

    assert merge_patch(once, patch) == once


@pytest.mark.parametrize(
    ("target", "operations", "result"),
    [
        ({"foo": "bar"}, [{"op": "add", "path": "/baz", "value": "qux"}], {"foo": "bar", "baz": "qux"}),
        ({"foo": ["a", "c"]}, [{"op": "add", "path": "/foo/1", "value": "b"}], {"foo": ["a", "b", "c"]}),
        ({"foo": ["a"]}, [{"op": "add", "path": "/foo/-", "value": "b"}], {"foo": ["a", "b"]}),
        ({"a": 1, "b": 2}, [{"op": "remove", "path": "/b"}], {"a": 1}),
        ({"a": [1, 2]}, [{"op": "remove", "path": "/a/0"}], {"a": [2]}),
        ({"a": 1}, [{"op": "replace", "path": "/a", "value": 2}], {"a": 2}),
        ({"a": {"b": 1}, "c": {}}, [{"op": "move", "from": "/a/b", "path": "/c/d"}], {"a": {}, "c": {"d": 1}}),
        ({"a": [1, 2, 3]}, [{"op": "move", "from": "/a/0", "path": "/a/2"}], {"a": [2, 3, 1]}),
        ({"a": {"b": 1}}, [{"op": "copy", "from": "/a", "path": "/c"}], {"a": {"b": 1}, "c": {"b": 1}}),
        ({"a~/b": 1}, [{"op": "test", "path": "/a~0~1b", "value": 1}], {"a~/b": 1}),
        ({"a": 1}, [{"op": "replace", "path": "", "value": {"b": 2}}], {"b": 2}),
        ({"a": 1}, [], {"a": 1}),
    ],
)
def test_json_patch_follows_rfc_6902(target, operations, result):
    assert json_patch(target, operations) == result


@pytest.mark.parametrize(
    ("operations", "error"),
    [
        ({"op": "add"}, Malformed),
        ("text", Malformed),
        ([5], Malformed),
        ([{"op": "grow", "path": "/a"}], Malformed),
        ([{"op": "add", "path": "/a"}], Malformed),
        ([{"op": "add", "path": "a", "value": 1}], Malformed),
        ([{"op": "add", "path": 5, "value": 1}], Malformed),
        ([{"op": "move", "path": "/a"}], Malformed),
        ([{"op": "remove", "path": "/nope"}], InvalidArgument),
        ([{"op": "replace", "path": "/nope", "value": 1}], InvalidArgument),
        ([{"op": "add", "path": "/x/y", "value": 1}], InvalidArgument),
        ([{"op": "add", "path": "/list/9", "value": 1}], InvalidArgument),
        ([{"op": "add", "path": "/list/01", "value": 1}], InvalidArgument),
        ([{"op": "remove", "path": "/list/-"}], InvalidArgument),
        ([{"op": "remove", "path": "/list/-1"}], InvalidArgument),
        ([{"op": "test", "path": "/a", "value": 2}], InvalidArgument),
        ([{"op": "test", "path": "/one", "value": True}], InvalidArgument),
        ([{"op": "move", "from": "/map", "path": "/map/in"}], InvalidArgument),
        ([{"op": "add", "path": "/a", "value": 1}] * 1001, Malformed),
        ([{"op": "copy", "from": "", "path": "/a"}] * 200, Malformed),
        ([{"op": "copy", "from": "", "path": f"/k{n}"} for n in range(40)], Malformed),
    ],
)
def test_json_patch_that_does_not_apply_is_refused_whole(operations, error):
    target = {"a": 1, "one": 1, "list": [1], "map": {}}

    with pytest.raises(error):
        json_patch(target, operations)

    assert target == {"a": 1, "one": 1, "list": [1], "map": {}}


@given(JSON, st.lists(st.fixed_dictionaries({}, optional={"op": st.sampled_from(["add", "remove", "replace", "move", "copy", "test", "x"]), "path": st.text("ab/01-~", max_size=4), "from": st.text("ab/0", max_size=3), "value": JSON}), max_size=4))  # fmt: skip
def test_json_patch_of_any_garbage_ends_in_a_value_or_a_refusal(target, operations):
    try:
        json_patch(target, operations)
    except (Malformed, InvalidArgument):
        pass


POD = {
    "spec": {
        "containers": [{"name": "a", "image": "x", "env": [{"name": "K", "value": "1"}]}, {"name": "b", "image": "y"}]
    }
}


def test_strategic_patch_merges_containers_by_name():
    patch = {"spec": {"containers": [{"name": "b", "image": "z"}, {"name": "c", "image": "w"}]}}

    merged = strategic_merge(POD, patch)

    assert [c["image"] for c in merged["spec"]["containers"]] == ["x", "z", "w"]
    assert merged["spec"]["containers"][0]["env"] == [{"name": "K", "value": "1"}]


def test_strategic_patch_deletes_and_orders_elements():
    patch = {
        "spec": {
            "$setElementOrder/containers": [{"name": "c"}, {"name": "b"}],
            "containers": [{"name": "a", "$patch": "delete"}, {"name": "c", "image": "w"}],
        }
    }

    assert [c["name"] for c in strategic_merge(POD, patch)["spec"]["containers"]] == ["c", "b"]


def test_strategic_patch_replaces_maps_and_lists_when_told():
    body = {"data": {"a": "1", "b": "2"}, "spec": POD["spec"]}

    replaced = strategic_merge(
        body, {"data": {"$patch": "replace", "c": "3"}, "spec": {"containers": [{"$patch": "replace"}, {"name": "n"}]}}
    )

    assert replaced == {"data": {"c": "3"}, "spec": {"containers": [{"name": "n"}]}}


def test_strategic_patch_keeps_only_the_named_keys_and_drops_plain_values():
    body = {"metadata": {"finalizers": ["a", "b"]}, "spec": {"x": 1, "y": 2}}
    patch = {
        "metadata": {"$deleteFromPrimitiveList/finalizers": ["a"], "finalizers": ["c"]},
        "spec": {"$retainKeys": ["y"], "y": 3},
    }

    assert strategic_merge(body, patch) == {"metadata": {"finalizers": ["b", "c"]}, "spec": {"y": 3}}


@pytest.mark.parametrize(
    "patch", [{"$patch": "grow"}, {"spec": {"containers": [{"image": "x"}]}}, {"spec": {"containers": ["x"]}}]
)
def test_strategic_patch_with_a_wrong_directive_is_malformed(patch):
    with pytest.raises(Malformed):
        strategic_merge(POD, patch)


ROLES = {
    "spec": {"roles": [{"name": "a", "replicas": 3, "env": [{"name": "X", "value": "1"}], "ports": [{"port": 1}]}]}
}


@pytest.mark.parametrize(
    ("patch", "role"),
    [
        ({"size": 2}, {**ROLES["spec"]["roles"][0], "size": 2}),
        ({"env": [{"name": "X", "value": "2"}]}, {**ROLES["spec"]["roles"][0], "env": [{"name": "X", "value": "2"}]}),
        ({"env": [{"name": "X", "$patch": "delete"}]}, {**ROLES["spec"]["roles"][0], "env": []}),
        ({"ports": [{"port": 2}]}, {**ROLES["spec"]["roles"][0], "ports": [{"port": 1}, {"port": 2}]}),
    ],
)
def test_roles_of_a_deployment_merge_by_name(patch, role):
    merged = strategic_merge(ROLES, {"spec": {"roles": [{"name": "a", **patch}]}}, merge_keys(KINDS["ModelDeployment"]))

    assert merged == {"spec": {"roles": [role]}}


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.kind)
def test_patches_of_a_kind_take_the_same_types_wherever_they_are_told(kind):
    """kubectl looks at any one of them, by chance."""
    place = "api/v1" if not kind.group else f"apis/{kind.api_version}"
    paths = json.loads(openapi.document(place))["paths"].values()
    named = {"group": kind.group, "version": kind.version, "kind": kind.kind}

    taken = [
        set(path["patch"]["requestBody"]["content"])
        for path in paths
        if "patch" in path and path["patch"]["x-kubernetes-group-version-kind"] == named
    ]

    assert all("application/strategic-merge-patch+json" in types for types in taken)
    assert len(taken) == (0 if kind.read_only else 1)


def test_list_without_keys_of_its_own_is_replaced():
    keys = merge_keys(KINDS["Instance"])

    merged = strategic_merge({"spec": {"env": [{"name": "a"}]}}, {"spec": {"env": [{"name": "b"}]}}, keys)

    assert merged == {"spec": {"env": [{"name": "b"}]}}


@pytest.mark.parametrize("kind", [kind for kind in KINDS.values() if kind.group], ids=lambda kind: kind.kind)
def test_kubectl_is_told_of_the_merges_that_the_server_makes(kind):
    """One that only one side knows of would lose elements, or bring removed ones back."""
    place = next(f"apis/{version}" for version in groups() if version == kind.api_version)
    schemas = json.loads(openapi.document(place))["components"]["schemas"]
    mine = {name: schema for name, schema in schemas.items() if _reaches(schemas, kind, name)}

    told = {
        (field, below.get("x-kubernetes-patch-merge-key"))
        for schema in mine.values()
        for field, below in schema.get("properties", {}).items()
        if "x-kubernetes-patch-merge-key" in below
    }

    assert told == set(merge_keys(kind).items())


def _reaches(schemas, kind, wanted):
    top = next(
        name
        for name, s in schemas.items()
        if {"kind": kind.kind}.items() <= (s.get("x-kubernetes-group-version-kind") or [{}])[0].items()
    )
    seen, left = set(), [top]
    while left:
        name = left.pop()
        if name not in seen:
            seen.add(name)
            left += [part.split('"')[0] for part in json.dumps(schemas[name]).split("#/components/schemas/")[1:]]
    return wanted in seen
