"""Log lines, causes, metric names."""

from __future__ import annotations

import asyncio
import logging
import sys

import orjson
import pytest

from shared.errors import InvalidArgument, Unavailable
from shared.telemetry import metrics, tracing
from shared.telemetry.logging import JsonFormatter, get_logger
from shared.telemetry.tracing import Cause, caused_by, current_cause, parse_traceparent

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def lines():
    records: list[dict[str, object]] = []

    class Keeps(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            records.append(orjson.loads(JsonFormatter("scheduler", "one").format(record)))

    handler = Keeps()
    root = logging.getLogger()
    before = root.level
    root.addHandler(handler)
    root.setLevel("DEBUG")
    yield records
    root.removeHandler(handler)
    root.setLevel(before)


def test_a_line_has_its_event_origin_and_fields_and_leaves_none_out(lines: list[dict[str, object]]):
    get_logger("x").info("pool_formed", pool="p", size=3, reason=None)

    (line,) = lines
    assert str(line.pop("ts")).endswith("Z")
    assert line == {
        "level": "info",
        "event": "pool_formed",
        "service": "scheduler",
        "instance": "one",
        "pool": "p",
        "size": 3,
    }


def test_a_line_inside_a_message_carries_its_cause(lines: list[dict[str, object]]):
    with caused_by(Cause("op-1", "m-1")):
        get_logger("x").warning("w")

    assert (lines[0]["correlation_id"], lines[0]["causation_id"]) == ("op-1", "m-1")


def test_an_error_adds_type_text_code_and_stack(lines: list[dict[str, object]]):
    def fails() -> None:
        raise Unavailable("redis is away")

    try:
        fails()
    except Unavailable:
        get_logger("x").exception("failed", step=1)

    assert (lines[0]["level"], lines[0]["error"], lines[0]["code"]) == ("error", "Unavailable", "Unavailable")
    assert "test_telemetry" in str(lines[0]["stack"])


def test_a_librarys_record_is_told_apart(lines: list[dict[str, object]]):
    logging.getLogger("nats.aio").error("slow %s", "consumer")

    assert (lines[0]["event"], lines[0]["library"], lines[0]["text"]) == ("library_log", "nats.aio", "slow consumer")


def test_values_of_any_type_can_be_logged(lines: list[dict[str, object]]):
    get_logger("x").info("e", path=sys, keys={1: {2}})

    assert lines


async def test_tasks_inherit_the_cause_and_do_not_leak_it():
    async def look() -> Cause:
        return current_cause()

    with caused_by(Cause("op-1", "m-1", TRACEPARENT)):
        task = asyncio.ensure_future(look())

    assert await task == Cause("op-1", "m-1", TRACEPARENT)
    assert current_cause() == Cause()


def test_a_traceparent_is_parsed_or_ignored():
    context = parse_traceparent(TRACEPARENT)

    assert context is not None
    assert (f"{context.trace_id:032x}", context.trace_flags.sampled) == ("0af7651916cd43dd8448eb211c80319c", True)
    for text in ("", "nonsense", "00-x-y-z", "00-00000000000000000000000000000000-0000000000000000-00"):
        assert parse_traceparent(text) is None


def test_an_unknown_trace_target_is_refused():
    with pytest.raises(InvalidArgument, match="neither"):
        tracing.configure("ftp://x", "s", "i")


def test_metric_names_are_stable():
    # Dashboards and alerts hold these names: changing one is a change for users.
    assert {value for name, value in vars(metrics).items() if name.isupper() and not name.startswith("_") and isinstance(value, str)} == {
        "gpubus_messages_handled_total", "gpubus_handle_seconds", "gpubus_outbox_depth", "gpubus_outbox_oldest_seconds",
        "gpubus_outbox_refused_total", "gpubus_relayed_total", "gpubus_republished_total", "gpubus_dead_letters_total",
        "gpubus_commit_conflicts_total", "gpubus_consumer_lag", "gpubus_bus_connected", "gpubus_bus_reconnects_total",
        "gpubus_loop_restarts_total",
    }  # fmt: skip
    text = metrics.exposition().decode()
    assert "# TYPE gpubus_outbox_depth gauge" in text
