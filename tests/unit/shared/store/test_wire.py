"""Replies as results and errors."""

from __future__ import annotations

import pytest

from shared.errors import AlreadyExists, GpubusError, NotFound, Raced, ResourceExhausted, Unavailable
from shared.store import acl, wire
from shared.store.checks import check_server
from shared.store.documents import Committed
from shared.subjects import SERVICES


def test_results_count_their_revisions_up() -> None:
    assert wire.decode([b"ok", b"7", b"3"]) == Committed((7, 8, 9))
    assert wire.decode([b"dup", b"7", b"1", b'{"a":1}']) == Committed((7,), duplicate=True, answer={"a": 1})
    assert wire.inbox_entry(b"0 0 ") == Committed((), duplicate=True)
    assert wire.inbox_entry(b'4 2 {"text": "with spaces"}').answer == {"text": "with spaces"}


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        ([b"err", b"raced", b"key", b"{gpubus}:doc:Node:/n"], Raced),
        ([b"err", b"exists", b"key", b"k"], AlreadyExists),
        ([b"err", b"missing", b"key", b"k"], NotFound),
        ([b"err", b"outbox", b"key", b"k"], ResourceExhausted),
        ([b"err", b"server", b"detail", b"OOM command not allowed"], ResourceExhausted),
        ([b"err", b"server", b"detail", b"READONLY You can't write"], Unavailable),
        ([b"err", b"never heard of", b"detail", b"x"], GpubusError),
    ],
)
def test_refusals_have_their_error_and_name_the_key(reply: list[bytes], error: type[GpubusError]) -> None:
    with pytest.raises(error) as refused:
        wire.decode(reply)
    assert refused.value.fields["refusal"] == reply[1].decode()
    assert "{gpubus}" not in refused.value.message


def test_no_password_stands_in_the_acl_file() -> None:
    text = acl.acl_file(dict.fromkeys(SERVICES, "hunter2"), "admin-hunter2")

    assert "hunter2" not in text
    assert len(text.splitlines()) == len(SERVICES) + 2
    assert "user default off" in text


@pytest.mark.parametrize("version", ["6.2.14", "5.0.0", "unknown"])
def test_old_servers_are_refused_whatever_the_override(version: str) -> None:
    with pytest.raises(GpubusError, match=r"7\.0"):
        check_server({"redis_version": version}, allow_unsafe=True)
    check_server({"redis_version": "7.0.15"}, allow_unsafe=True)
