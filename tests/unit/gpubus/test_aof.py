"""Where an append-only file is cut: after the last whole command outside a transaction, or the last whole EXEC."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from gpubus.stack.aof import last_increment, repair, whole_until


def command(*words: str | bytes) -> bytes:
    parts = [word if isinstance(word, bytes) else word.encode() for word in words]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)


SELECT = command("SELECT", "0")
TRANSACTION = command("MULTI") + command("SET", "a", "1") + command("INCR", "b") + command("EXEC")
OPEN = command("multi") + command("SET", "c", "1")


@pytest.mark.parametrize(
    ("tail", "kept"),
    [
        pytest.param(b"", b"", id="whole"),
        pytest.param(b"\0" * 512, b"", id="zeros"),
        pytest.param(OPEN, b"", id="transaction-without-exec"),
        pytest.param(OPEN + b"\0" * 9, b"", id="transaction-then-zeros"),
        pytest.param(command("SET", "d", "1"), command("SET", "d", "1"), id="command-outside"),
        pytest.param(command("SET", "d", "1")[:-1], b"", id="command-without-its-end"),
        pytest.param(b"*2\r\n$3\r\nGET\r\n$99\r\nshort", b"", id="word-longer-than-file"),
        pytest.param(b"*1\r\n$-1\r\n", b"", id="negative-length"),
        pytest.param(b"*x\r\n", b"", id="no-number"),
        pytest.param(b"*99999999\r\n", b"", id="absurd-count"),
        pytest.param(b"#TS:1700000000\r\n" + TRANSACTION, b"#TS:1700000000\r\n" + TRANSACTION, id="time-annotation"),
        pytest.param(b"#TS:17", b"", id="torn-annotation"),
        pytest.param(command("SET", "e", b"\r\n*1\r\n$4\r\nEXEC"), command("SET", "e", b"\r\n*1\r\n$4\r\nEXEC"), id="payload-that-looks-like-a-command"),
        pytest.param(OPEN + b"\0" + TRANSACTION, b"", id="nothing-after-damage-is-kept"),
    ],
)  # fmt: skip
def test_cut_keeps_what_is_whole_and_nothing_after(tail, kept):
    whole = SELECT + TRANSACTION
    assert whole_until(io.BytesIO(whole + tail)) == len(whole + kept)


def test_every_cut_of_a_file_keeps_whole_transactions_only():
    whole = SELECT + TRANSACTION * 3 + command("SET", "d", "1")
    ends = [len(SELECT)] + [len(SELECT + TRANSACTION * n) for n in (1, 2, 3)] + [len(whole)]
    for length in range(len(whole) + 1):
        assert whole_until(io.BytesIO(whole[:length])) == max([0, *(end for end in ends if end <= length)])


def directory(tmp_path: Path, tail: bytes) -> Path:
    folder = tmp_path / "appendonlydir"
    folder.mkdir()
    (folder / "appendonly.aof.2.base.rdb").write_bytes(b"REDIS")
    (folder / "appendonly.aof.1.incr.aof").write_bytes(SELECT + b"old and superseded")
    (folder / "appendonly.aof.12.incr.aof").write_bytes(SELECT + TRANSACTION + tail)
    (folder / "appendonly.aof.manifest").write_text(
        "file appendonly.aof.2.base.rdb seq 2 type b\n"
        "file appendonly.aof.1.incr.aof seq 1 type h\n"
        "file appendonly.aof.11.incr.aof seq 11 type i startoffset 0\n"
        "file appendonly.aof.12.incr.aof seq 12 type i\n"
    )
    return tmp_path


def test_repair_cuts_the_last_increment_and_keeps_a_copy(tmp_path):
    redis_dir = directory(tmp_path, OPEN + b"\0" * 100)
    damaged = (path := last_increment(redis_dir)).read_bytes()

    sentence = repair(redis_dir)

    assert path.read_bytes() == SELECT + TRANSACTION
    (copy,) = (redis_dir / "damaged").iterdir()
    assert copy.read_bytes() == damaged
    assert str(copy) in sentence
    assert f"last {len(OPEN) + 100} bytes" in sentence


def test_repair_leaves_a_sound_file_alone(tmp_path):
    redis_dir = directory(tmp_path, b"")
    assert repair(redis_dir) == ""
    assert not (redis_dir / "damaged").exists()


def test_repair_without_a_file_has_nothing_to_do(tmp_path):
    assert repair(tmp_path) == ""


def test_a_second_repair_does_not_overwrite_the_first_copy(tmp_path):
    redis_dir = directory(tmp_path, b"\0")
    repair(redis_dir)
    with last_increment(redis_dir).open("ab") as file:
        file.write(b"\0\0")
    repair(redis_dir)
    assert sorted(path.stat().st_size for path in (redis_dir / "damaged").iterdir()) == [
        len(SELECT + TRANSACTION) + 1, len(SELECT + TRANSACTION) + 2,
    ]  # fmt: skip
