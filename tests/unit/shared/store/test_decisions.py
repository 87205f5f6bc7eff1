"""Metadata rules of object writes, over generated histories."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.commands.objects import WriteObject
from shared.errors import Aborted, AlreadyExists, FailedPrecondition, GpubusError, NotFound
from shared.resources.kinds import KINDS
from shared.store import decisions
from shared.store.decisions import Outcome
from shared.store.documents import Document
from shared.store.rules import WriteRules

KIND = KINDS["ConfigMap"]
RULES = WriteRules(kind="ConfigMap", finalizers=("gpubus.io/held",))
START = datetime(2026, 1, 1, tzinfo=UTC)


def request(verb: str, body: dict[str, Any] | None = None, **fields: Any) -> WriteObject:
    return WriteObject(verb=verb, kind="ConfigMap", namespace="n", name="c", object=body, **fields)  # type: ignore[arg-type]


def body(data: dict[str, str], **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": "c", **metadata}, "data": data}


def decide(ask: WriteObject, current: Document | None, now: datetime) -> Outcome:
    resource = decisions.prepare(ask, KIND, RULES)
    if ask.verb == "create":
        return decisions.create(ask, KIND, RULES, resource, current, lambda *_: None, now)
    found = decisions.present(ask, KIND, current)
    if ask.verb == "delete":
        return decisions.delete(ask, KIND, RULES, found, now)
    return decisions.replace(ask, KIND, RULES, resource, found, lambda *_: None)


def apply(outcome: Outcome, revision: int) -> Document | None:
    if outcome.body is None:
        return None
    return Document("ConfigMap", "n", "c", outcome.body["metadata"]["uid"], revision, 1, outcome.body)


words = st.dictionaries(st.sampled_from("abc"), st.sampled_from("xyz"), max_size=2)
writes = st.one_of(
    st.tuples(st.just("create"), words, words, st.booleans()),
    st.tuples(st.just("replace"), words, words, st.booleans()),
    st.tuples(st.just("delete"), words, words, st.booleans()),
)


@given(st.lists(writes, max_size=30))
def test_any_history_keeps_identity_generation_and_finalizers_right(history: list[Any]) -> None:
    current: Document | None = None
    uids: set[str] = set()
    for revision, (verb, data, labels, keep) in enumerate(history, start=1):
        finalizers = ["gpubus.io/held"] if keep else []
        sent = None if verb == "delete" else body(data, labels=labels, finalizers=finalizers)
        try:
            outcome = decide(request(verb, sent), current, START + timedelta(seconds=revision))
        except (AlreadyExists, NotFound):
            assert (verb == "create") == (current is not None)
            continue
        except GpubusError:
            assert current is not None
            assert current.deleting
            continue
        after = apply(outcome, revision)
        check_step(verb, data, current, after, outcome)
        if current is None and after is not None:
            assert after.uid not in uids
            uids.add(after.uid)
        current = current if outcome.unchanged else after


def check_step(
    verb: str, data: dict[str, str], before: Document | None, after: Document | None, outcome: Outcome
) -> None:
    if verb == "create":
        assert after is not None
        assert after.body["metadata"]["generation"] == 1
        assert "gpubus.io/held" in after.body["metadata"]["finalizers"]
        return
    assert before is not None
    old = before.body["metadata"]
    if after is None:
        assert verb == "delete" or before.deleting
        return
    new = after.body["metadata"]
    assert (new["uid"], new["creationTimestamp"]) == (old["uid"], old["creationTimestamp"])
    assert new.get("deletionTimestamp", old.get("deletionTimestamp")) == new.get("deletionTimestamp")
    changed = verb == "replace" and data != before.body.get("data", {})
    assert new["generation"] == old["generation"] + (1 if changed else 0)
    assert outcome.unchanged == (after.body == before.body)


def stored(**metadata: Any) -> Document:
    outcome = decide(request("create", body({"a": "x"}, **metadata)), None, START)
    found = apply(outcome, 5)
    assert found is not None
    return found


@pytest.mark.parametrize(
    "ask",
    [
        request("replace", body({}), expected_revision=4),
        request("replace", body({}, resourceVersion="4")),
        request("replace", body({}, uid="other")),
        request("delete", expected_uid="other"),
        request("delete", expected_revision=4),
    ],
    ids=["revision", "object-revision", "object-uid", "delete-uid", "delete-revision"],
)
def test_another_revision_or_uid_is_aborted(ask: WriteObject) -> None:
    with pytest.raises(Aborted):
        decide(ask, stored(), START)


def test_the_requests_revision_wins_over_the_objects() -> None:
    ask = request("replace", body({"b": "y"}, resourceVersion="4"), expected_revision=5)

    assert decide(ask, stored(), START).expect == 5


def test_grace_is_told_with_the_mark() -> None:
    outcome = decide(request("delete", grace_period_seconds=7), stored(), START)

    assert outcome.body is not None
    assert outcome.body["metadata"]["deletionTimestamp"] == "2026-01-01T00:00:00Z"
    assert outcome.body["metadata"]["deletionGracePeriodSeconds"] == 7


def test_namespaces_are_needed_by_what_lies_in_them() -> None:
    ask = request("create", body({}))
    with pytest.raises(NotFound, match="kubectl create namespace n"):
        decisions.check_namespace(ask, KIND, None)
    with pytest.raises(FailedPrecondition):
        decisions.check_namespace(
            ask, KIND, Document("Namespace", "", "n", "u", 1, 1, {"metadata": {"deletionTimestamp": "x"}})
        )
    decisions.check_namespace(request("delete"), KIND, None)
