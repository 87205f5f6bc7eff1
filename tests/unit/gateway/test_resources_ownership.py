"""Server-side apply: who owns which field, conflicts, and what goes when it is no longer applied."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.gateway.domain.field_sets import fields_of, from_fields_v1, shown, to_fields_v1, without
from services.gateway.domain.ownership import Writer, applied, owners_of, updated
from shared.errors import Aborted

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LATER = datetime(2026, 1, 2, tzinfo=UTC)


def writer(name, now=NOW):
    return Writer(name, "v1", now)


def config(**data):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "namespace": "n"}, "data": data}


def owned(body, manager):
    return {
        shown(path)
        for owner in owners_of(body["metadata"].get("managedFields"))
        if owner.manager == manager
        for path in owner.fields
    }


def roles(*items):
    return {"metadata": {"name": "x"}, "spec": {"roles": list(items)}}


def test_first_apply_owns_what_it_applied():
    body = applied(None, config(a="1"), writer("me"), force=False)

    assert body["data"] == {"a": "1"}
    assert owned(body, "me") == {".data.a"}
    entry = body["metadata"]["managedFields"][0]
    assert (entry["manager"], entry["operation"], entry["fieldsType"]) == ("me", "Apply", "FieldsV1")
    assert entry["fieldsV1"] == {"f:data": {"f:a": {}}}


def test_second_apply_removes_what_is_no_longer_applied():
    body = applied(None, config(a="1", b="2"), writer("me"), force=False)

    body = applied(body, config(b="3"), writer("me"), force=False)

    assert body["data"] == {"b": "3"}
    assert owned(body, "me") == {".data.b"}


def test_field_of_another_stays():
    body = applied(None, config(a="1"), writer("me"), force=False)
    body = applied(body, config(b="2"), writer("you"), force=False)

    body = applied(body, config(), writer("me"), force=False)

    assert body["data"] == {"b": "2"}
    assert owned(body, "you") == {".data.b"}


def test_shared_field_goes_with_its_last_applier():
    body = applied(None, config(a="1"), writer("me"), force=False)
    body = applied(body, config(a="1"), writer("you"), force=False)

    kept = applied(body, config(), writer("me"), force=False)
    gone = applied(kept, config(), writer("you"), force=False)

    assert kept["data"] == {"a": "1"}
    assert gone.get("data", {}) == {}


def test_other_value_for_a_field_of_another_is_a_conflict_that_names_both():
    body = applied(None, config(a="1"), writer("me"), force=False)

    with pytest.raises(Aborted) as caught:
        applied(body, config(a="2"), writer("you"), force=False)

    assert caught.value.causes[0].field == ".data.a"
    assert caught.value.causes[0].reason == "FieldManagerConflict"
    assert '"me"' in caught.value.message


def test_force_takes_the_field_over():
    body = applied(None, config(a="1"), writer("me"), force=False)

    body = applied(body, config(a="2"), writer("you"), force=True)

    assert body["data"] == {"a": "2"}
    assert owned(body, "me") == set()
    assert owned(body, "you") == {".data.a"}


def test_plain_write_takes_over_what_it_changed():
    body = applied(None, config(a="1", b="1"), writer("me"), force=False)
    changed = {**body, "data": {"a": "9", "b": "1"}}

    body = updated(body, changed, writer("hand"))

    assert owned(body, "hand") == {".data.a"}
    assert owned(body, "me") == {".data.b"}


def test_plain_write_that_changes_nothing_owns_nothing():
    body = applied(None, config(a="1"), writer("me"), force=False)

    assert updated(body, body, writer("hand", LATER)) == body


def test_apply_of_the_same_again_changes_nothing():
    body = applied(None, config(a="1"), writer("me"), force=False)

    assert applied(body, config(a="1"), writer("me", LATER), force=False) == body


def test_list_elements_with_names_are_owned_one_by_one():
    first = roles({"name": "a", "replicas": 1}, {"name": "b", "replicas": 1})
    body = applied(None, first, writer("me"), force=False)

    body = applied(body, roles({"name": "c", "replicas": 5}), writer("you"), force=False)
    body = applied(body, roles({"name": "a", "replicas": 1}), writer("me"), force=False)

    assert [role["name"] for role in body["spec"]["roles"]] == ["a", "c"]


def test_element_that_another_shares_keeps_its_name():
    body = applied(None, roles({"name": "a", "replicas": 1}), writer("me"), force=False)
    scaled = {**body, "spec": {"roles": [{"name": "a", "replicas": 3}]}}
    body = updated(body, scaled, writer("scaler"))

    body = applied(body, {"metadata": {"name": "x"}, "spec": {}}, writer("me"), force=False)

    assert body["spec"]["roles"] == [{"name": "a", "replicas": 3}]


def test_list_without_names_is_one_value():
    body = applied(None, {"spec": {"args": ["a", "b"]}}, writer("me"), force=False)

    with pytest.raises(Aborted):
        applied(body, {"spec": {"args": ["a"]}}, writer("you"), force=False)


def test_null_in_an_applied_object_is_absent():
    assert "b" not in applied(None, config(a="1", b=None), writer("me"), force=False)["data"]


def test_status_and_identity_are_nobodys():
    assert (
        fields_of(
            {
                "apiVersion": "v1",
                "kind": "X",
                "metadata": {"name": "a", "uid": "u", "resourceVersion": "5"},
                "status": {"a": 1},
            }
        )
        == frozenset()
    )


def test_many_writers_are_kept_as_ancient_ones():
    body = {"metadata": {"name": "x"}, "data": {}}
    for number in range(30):
        changed = {**body, "data": {**body["data"], f"k{number}": "1"}}
        body = updated(body, changed, writer(f"w{number}", NOW.replace(minute=number)))

    entries = body["metadata"]["managedFields"]
    assert len(entries) <= 10
    assert any(entry["manager"] == "ancient-changes" for entry in entries)
    assert {p for o in owners_of(entries) for p in o.fields} == fields_of(body)


def test_unreadable_ownership_is_ignored():
    for managed in (
        None,
        "x",
        5,
        [5],
        [{"operation": "Apply", "fieldsV1": "x"}],
        [{"operation": "X"}],
        [{"operation": "Update", "fieldsV1": {"k:{": {"x": {}}}}],
    ):
        body = {"metadata": {"managedFields": managed}, "data": {"a": "1"}}

        assert applied(body, config(a="1"), writer("me"), force=False)["data"] == {"a": "1"}


LEAF = st.integers(0, 3) | st.sampled_from(["a", "b"]) | st.lists(st.integers(0, 2), max_size=2)
NAMED = st.lists(
    st.fixed_dictionaries({"name": st.sampled_from("xyz"), "v": LEAF}), max_size=3, unique_by=lambda item: item["name"]
)
BODY = st.fixed_dictionaries({"spec": st.dictionaries(st.sampled_from("pqr"), LEAF, max_size=3), "roles": NAMED, "metadata": st.fixed_dictionaries({"labels": st.dictionaries(st.sampled_from("lm"), st.sampled_from("12"), max_size=2)})})  # fmt: skip


@given(BODY)
def test_field_sets_survive_their_wire_form(body):
    found = fields_of(body)

    assert from_fields_v1(to_fields_v1(found)) == found


@given(BODY, BODY)
def test_apply_makes_the_applied_fields_so_and_is_idempotent(first, second):
    body = applied(None, first, writer("me"), force=False)
    body = applied(body, second, writer("me"), force=False)

    assert body["spec"] == second["spec"]
    assert sorted(body["roles"], key=lambda r: r["name"]) == sorted(second["roles"], key=lambda r: r["name"])
    assert applied(body, second, writer("me", LATER), force=False) == body


@given(BODY, BODY, BODY)
def test_two_appliers_never_lose_each_others_fields(mine, yours, mine_later):
    body = applied(None, mine, writer("me"), force=True)
    body = applied(body, yours, writer("you"), force=True)
    body = applied(body, mine_later, writer("me"), force=True)
    wanted = owned(body, "you")

    everything = {shown(path) for path in fields_of(body)}

    assert all(path in everything or any(other.startswith(path) for other in everything) for path in wanted)


@given(BODY)
def test_removing_every_field_leaves_nothing(body):
    assert fields_of(without(body, fields_of(body))) <= {("f:spec",), ("f:roles",), ("f:metadata", "f:labels")}
