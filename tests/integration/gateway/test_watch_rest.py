"""Watches over HTTPS: order, resume, selectors, bookmarks, and 410 when the past is gone."""

import pytest

from tests.support.gateway import Gateway
from tests.support.wait import eventually_sync

MAPS = "/api/v1/namespaces/default/configmaps"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


def revision(gateway):
    return gateway.call("GET", MAPS).body["metadata"]["resourceVersion"]


def make(gateway, name, **metadata):
    return gateway.call("POST", MAPS, {"metadata": {"name": name, **metadata}}).body


def change(gateway, name, patch):
    return gateway.call("PATCH", f"{MAPS}/{name}", patch, content="application/merge-patch+json").body


def test_watch_tells_every_change_once_and_in_order(gateway):
    since = revision(gateway)
    with gateway.watch(f"{MAPS}?watch=true&resourceVersion={since}") as watch:
        make(gateway, "a")
        change(gateway, "a", {"data": {"x": "1"}})
        gateway.call("DELETE", f"{MAPS}/a")
        make(gateway, "a")

        eventually_sync(lambda: len(watch.events) >= 4)

    assert watch.types() == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a"), ("ADDED", "a")]
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in watch.events]
    assert versions == sorted(set(versions))
    gateway.call("DELETE", f"{MAPS}/a")


def test_watch_resumes_where_another_ended(gateway):
    since = revision(gateway)
    make(gateway, "r1")
    middle = revision(gateway)
    make(gateway, "r2")

    with (
        gateway.watch(f"{MAPS}?watch=true&resourceVersion={since}") as all_of_it,
        gateway.watch(f"{MAPS}?watch=1&resourceVersion={middle}") as rest,
    ):
        eventually_sync(lambda: len(all_of_it.events) >= 2 and len(rest.events) >= 1)

    assert all_of_it.types() == [("ADDED", "r1"), ("ADDED", "r2")]
    assert rest.types() == [("ADDED", "r2")]


def test_watch_without_a_revision_begins_with_what_is_there(gateway):
    make(gateway, "there")

    with gateway.watch(f"{MAPS}?watch=true&fieldSelector=metadata.name=there") as watch:
        eventually_sync(lambda: watch.events)
        change(gateway, "there", {"data": {"x": "1"}})
        eventually_sync(lambda: len(watch.events) >= 2)

    assert watch.types() == [("ADDED", "there"), ("MODIFIED", "there")]


def test_streamed_list_ends_with_a_bookmark(gateway):
    make(gateway, "streamed")
    query = (
        "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=1"
    )

    with gateway.watch(f"{MAPS}?{query}") as watch:
        eventually_sync(lambda: watch.ended)

    kinds = [event["type"] for event in watch.events]
    mark = kinds.index("BOOKMARK")
    assert set(kinds[:mark]) == {"ADDED"}
    assert watch.events[mark]["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert kinds[-1] == "BOOKMARK"
    assert int(watch.events[-1]["object"]["metadata"]["resourceVersion"]) >= int(
        watch.events[mark]["object"]["metadata"]["resourceVersion"]
    )


def test_streamed_list_needs_its_match(gateway):
    assert gateway.call("GET", f"{MAPS}?watch=true&sendInitialEvents=true").status == 422


def test_object_that_enters_or_leaves_the_selection_is_added_or_deleted(gateway):
    since = revision(gateway)
    with gateway.watch(f"{MAPS}?watch=true&resourceVersion={since}&labelSelector=on=air") as watch:
        make(gateway, "radio")
        change(gateway, "radio", {"metadata": {"labels": {"on": "air"}}})
        change(gateway, "radio", {"data": {"x": "1"}})
        change(gateway, "radio", {"metadata": {"labels": {"on": "off"}}})
        make(gateway, "other", labels={"on": "air"})

        eventually_sync(lambda: len(watch.events) >= 4)

    assert watch.types() == [("ADDED", "radio"), ("MODIFIED", "radio"), ("DELETED", "radio"), ("ADDED", "other")]


def test_watch_from_the_log_knows_who_left_the_selection(gateway):
    """Further back than the ring: only the log has it."""
    make(gateway, "old", labels={"on": "long"})
    since = revision(gateway)
    change(gateway, "old", {"metadata": {"labels": None}})
    gateway.child.end()
    gateway.child.start().ready()
    make(gateway, "new", labels={"on": "long"})

    with gateway.watch(f"{MAPS}?watch=true&resourceVersion={since}&labelSelector=on=long") as watch:
        eventually_sync(lambda: len(watch.events) >= 2)

    assert watch.types() == [("DELETED", "old"), ("ADDED", "new")]


def test_watch_of_another_namespace_or_kind_is_quiet(gateway):
    gateway.kubectl("create", "ns", "quiet")
    since = revision(gateway)
    with gateway.watch(f"/api/v1/namespaces/quiet/configmaps?watch=true&resourceVersion={since}") as watch:
        make(gateway, "noise")
        gateway.call("POST", "/api/v1/namespaces/quiet/secrets", {"metadata": {"name": "s"}})
        gateway.call("POST", "/api/v1/namespaces/quiet/configmaps", {"metadata": {"name": "signal"}})
        eventually_sync(lambda: watch.events)

    assert watch.types() == [("ADDED", "signal")]


def test_watch_over_all_namespaces(gateway):
    since = revision(gateway)
    with gateway.watch(f"/api/v1/configmaps?watch=true&resourceVersion={since}") as watch:
        make(gateway, "everywhere")
        eventually_sync(lambda: watch.events)

    assert watch.events[0]["object"]["metadata"]["namespace"] == "default"


def test_watched_tables_carry_their_columns_once(gateway):
    since = revision(gateway)
    with gateway.watch(f"{MAPS}?watch=true&resourceVersion={since}", accept=TABLE) as watch:
        make(gateway, "t1")
        make(gateway, "t2")
        eventually_sync(lambda: len(watch.events) >= 2)

    first, second = (event["object"] for event in watch.events[:2])
    assert [column["name"] for column in first["columnDefinitions"]] == ["Name", "Data", "Age"]
    assert second["columnDefinitions"] == []
    assert second["rows"][0]["cells"][0] == "t2"


@pytest.mark.parametrize("since", ["1", "99999999999999999"])
def test_revision_that_is_too_old_or_unknown_is_gone(gateway, since):
    answer = gateway.call("GET", f"{MAPS}?watch=true&resourceVersion={since}")

    assert (answer.status, answer.reason) == (410, "Expired")


def test_watch_ends_in_time(gateway):
    with gateway.watch(f"{MAPS}?watch=true&resourceVersion={revision(gateway)}&timeoutSeconds=1") as watch:
        eventually_sync(lambda: watch.ended)

    assert watch.events == []


def test_watch_is_told_to_list_again_when_the_store_lost_its_memory():
    """A new epoch: what a watch has seen may not have happened."""
    own = Gateway()
    try:
        own.start()
        since = revision(own)
        make(own, "kept")
        with own.watch(f"{MAPS}?watch=true&resourceVersion={since}") as watch:
            eventually_sync(lambda: watch.events)
            before = revision(own)
            own.redis.restart(clean=False)
            eventually_sync(
                lambda: (
                    any(event["type"] == "ERROR" for event in watch.events) or watch.ended or make(own, "after") is None
                ),
                timeout=20,
            )

            eventually_sync(lambda: watch.ended, timeout=20)

        assert watch.events[-1]["object"]["code"] == 410
        eventually_sync(lambda: own.call("GET", MAPS).status == 200, timeout=20)
        assert int(revision(own)) > int(before)
        gap = int(before) + 1_000_000
        assert own.call("GET", f"{MAPS}?watch=true&resourceVersion={gap}").status == 410
    finally:
        own.close()


def test_draining_gateway_ends_its_watches():
    own = Gateway()
    try:
        own.start()
        with own.watch(f"{MAPS}?watch=true&resourceVersion={revision(own)}") as watch:
            assert own.child.end() == 0
            eventually_sync(lambda: watch.ended)
    finally:
        own.close()
