"""Usage counts: summed, kept on disk until acknowledged, never sent twice under two names."""

from datetime import UTC, datetime

import pytest

from services.gateway.dataplane.meter import Meter
from services.gateway.domain.streaming import Usage
from services.gateway.domain.tables import Key, Model

KEY, OTHER = Key("h", "uid-1", "default", "viewer"), Key("h2", "uid-2", "default", "viewer")
MODEL = Model("default", "tiny")


class StillClock:
    """A moment that is moved by hand."""

    moment = 1_800_000_000.0

    def now(self):
        return datetime.fromtimestamp(self.moment, UTC)

    def monotonic(self):
        return self.moment


@pytest.fixture
def clock():
    return StillClock()


@pytest.fixture
def meter(tmp_path, clock):
    return Meter(tmp_path / "usage.spool", clock)


def test_requests_of_one_key_model_minute_and_outcome_are_one_row(meter, clock):
    meter.add(KEY, MODEL, "ok", Usage(11, 4, 7), 0.25)
    meter.add(KEY, MODEL, "ok", Usage(1, 0, 2), 0.75)
    meter.add(KEY, MODEL, "cancelled", None, 0.1)
    meter.add(OTHER, MODEL, "ok", None, 0.0)
    clock.moment += 60
    meter.add(KEY, MODEL, "ok", None, 0.0)

    assert meter.flush()

    ((boot, number, rows),) = meter.waiting
    assert (boot, number) == (meter.boot, 1)
    assert rows == [
        ["uid-1", "default", "tiny", 30_000_000, "ok", 2, 12, 4, 9, 1000],
        ["uid-1", "default", "tiny", 30_000_000, "cancelled", 1, 0, 0, 0, 100],
        ["uid-2", "default", "tiny", 30_000_000, "ok", 1, 0, 0, 0, 0],
        ["uid-1", "default", "tiny", 30_000_001, "ok", 1, 0, 0, 0, 0],
    ]


def test_nothing_to_tell_is_no_batch(meter, tmp_path):
    assert not meter.flush()
    assert not meter.waiting
    assert not (tmp_path / "usage.spool").exists()


def test_batches_survive_the_process_and_keep_their_names(meter, tmp_path, clock):
    meter.add(KEY, MODEL, "ok", None, 0)
    meter.flush()

    reborn = Meter(tmp_path / "usage.spool", clock)
    reborn.add(KEY, MODEL, "ok", None, 0)
    reborn.flush()

    assert [batch[:2] for batch in reborn.waiting] == [(meter.boot, 1), (reborn.boot, 1)]
    assert reborn.boot != meter.boot


def test_an_acknowledged_batch_is_gone_from_memory_and_with_the_next_flush_from_disk(meter, tmp_path, clock):
    for _ in range(2):
        meter.add(KEY, MODEL, "ok", None, 0)
        meter.flush()

    meter.acknowledged(meter.boot, 1)
    meter.acknowledged("somebody else", 2)

    assert [batch[1] for batch in meter.waiting] == [2]
    meter.flush()
    assert [batch[1] for batch in Meter(tmp_path / "usage.spool", clock).waiting] == [2]


def test_only_some_batches_are_sent_at_once_the_oldest_first(meter):
    for _ in range(100):
        meter.add(KEY, MODEL, "ok", None, 0)
        meter.flush()

    sent = meter.next_batches()

    assert [batch[1] for batch in sent] == list(range(1, len(sent) + 1))
    assert len(sent) < 100


def test_many_keys_are_split_into_batches_that_fit_a_message(meter):
    for number in range(4100):
        meter.add(Key("h", f"uid-{number}", "default", "viewer"), MODEL, "ok", None, 0)
    meter.flush()

    assert sum(len(rows) for _, _, rows in meter.waiting) == 4100
    assert max(len(rows) for _, _, rows in meter.waiting) <= 2000


@pytest.mark.parametrize("content", [b"", b"broken", b"\x91\x01", b"\x93\x01\x02\x03"])
def test_a_broken_spool_is_an_empty_one(tmp_path, clock, content):
    (tmp_path / "usage.spool").write_bytes(content)

    assert not Meter(tmp_path / "usage.spool", clock).waiting


def test_a_full_disk_loses_no_request(tmp_path, clock):
    meter = Meter(tmp_path / "no such folder" / "usage.spool", clock)
    meter.add(KEY, MODEL, "ok", None, 0)

    assert meter.flush()
    assert len(meter.waiting) == 1


def test_the_spool_is_for_its_owner_only(meter, tmp_path):
    meter.add(KEY, MODEL, "ok", None, 0)
    meter.flush()

    assert (tmp_path / "usage.spool").stat().st_mode & 0o777 == 0o600


def test_totals_go_on_over_flushes(meter):
    for _ in range(3):
        meter.add(KEY, MODEL, "ok", Usage(1, 0, 2), 1)
        meter.flush()

    assert meter.totals == {("tiny", "ok"): [3, 3, 0, 6, 3000]}
