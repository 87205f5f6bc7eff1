"""A whole process: start, readiness, metrics, loops that fail, drain on SIGTERM, traces across the bus."""

from __future__ import annotations

import signal
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import orjson
import pytest

from shared import subjects
from shared.commands.workload import SubmitWorkload
from shared.store.client import Store
from shared.store.documents import Commit
from shared.telemetry import metrics
from tests.integration.bus.conftest import Spawn
from tests.integration.bus.test_relay import drained, published
from tests.support.bus import Child, consumer, kept
from tests.support.servers import NatsServer, RedisServer, free_port
from tests.support.wait import eventually

SMALL = ("-m", "tests.support.small_service")


def get(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


@pytest.fixture
def small(spawn: Spawn, redis: RedisServer, tmp_path: Path):
    def make(server: NatsServer, instance: str = "one", **more: str) -> Child:
        return spawn(
            *SMALL, nats_url=server.url, redis_url=redis.url, instance=instance, data_dir=str(tmp_path), **more
        )

    return make


async def port_of(child: Child) -> int:
    started = await eventually(lambda: child.said("starting"), timeout=15)
    return int(started[0]["health_port"])


async def order(store: Store, name: str) -> None:
    await store.commit(Commit(commands=(SubmitWorkload(namespace="default", name=name, uid="u", spec={}),)))


def lines(path: Path) -> list[str]:
    return path.read_text().split() if path.exists() else []


async def test_a_process_becomes_ready_and_shows_its_metrics(server: NatsServer, small: Any):
    child = small(server)
    port = await port_of(child)

    await eventually(lambda: get(port, "/readyz")[0] == 200, timeout=15)

    assert orjson.loads(get(port, "/readyz")[1])["checks"] == {
        "serving": True,
        "extra": True,
        "bus": True,
        "store": True,
    }
    assert get(port, "/livez") == (200, "ok\n")
    assert get(port, "/nothing")[0] == 404
    status, text = get(port, "/metrics")
    assert status == 200
    for name in (metrics.OUTBOX_DEPTH, metrics.BUS_CONNECTED, metrics.HANDLE_SECONDS):
        assert name in text


async def test_losing_the_bus_is_not_ready_and_then_ready_again(own_server: NatsServer, small: Any):
    child = small(own_server)
    port = await port_of(child)
    await eventually(lambda: get(port, "/readyz")[0] == 200, timeout=15)

    own_server.kill()
    await eventually(lambda: get(port, "/readyz")[0] == 503)
    assert get(port, "/livez")[0] == 200
    own_server.start()

    await eventually(lambda: get(port, "/readyz")[0] == 200)


async def test_sigterm_finishes_the_handler_in_hand_flushes_and_ends_with_zero(
    server: NatsServer, store: Store, small: Any, tmp_path: Path
):
    child = small(server, work_seconds="1")
    await eventually(lambda: child.said("ready"), timeout=15)
    await order(store, "a")
    await order(store, "b")
    await eventually(lambda: lines(tmp_path / "started") == ["a"])

    child.send(signal.SIGTERM)

    assert child.wait() == 0
    assert lines(tmp_path / "started") == ["a"]
    assert lines(tmp_path / "done") == ["a"]
    assert await published(server) == ["a"]
    assert await drained(store)
    events = [line["event"] for line in child.lines()]
    assert events.index("draining") < events.index("on_stop_called") < events.index("stopped")
    assert await published(server, subjects.STREAM_COMMANDS) == ["b"]


async def test_what_a_drained_copy_left_is_done_by_the_next(
    server: NatsServer, store: Store, small: Any, tmp_path: Path
):
    first = small(server, work_seconds="0.3")
    await eventually(lambda: first.said("ready"), timeout=15)
    for number in range(6):
        await order(store, f"n{number}")
    await eventually(lambda: len(lines(tmp_path / "done")) >= 2)

    first.send(signal.SIGTERM)
    second = small(server, "two")
    assert first.wait() == 0

    await eventually(lambda: len(lines(tmp_path / "done")) == 6, timeout=20)
    await eventually(lambda: second.said("lease_acquired"))
    assert sorted(lines(tmp_path / "done")) == [f"n{n}" for n in range(6)]
    await eventually(lambda: drained(store))
    assert sorted(await published(server)) == [f"n{n}" for n in range(6)]


async def test_the_lease_is_given_back_at_once(server: NatsServer, small: Any):
    first = small(server, "one")
    await eventually(lambda: first.said("lease_acquired"), timeout=15)
    second = small(server, "two")
    await eventually(lambda: second.said("ready"), timeout=15)

    first.send(signal.SIGTERM)
    assert first.wait() == 0

    await eventually(lambda: second.said("lease_acquired"), timeout=5)
    assert not first.said("lease_left_to_expire")


async def test_a_killed_process_leaves_its_message_to_another(
    server: NatsServer, store: Store, small: Any, tmp_path: Path
):
    first = small(server, work_seconds="30")
    await eventually(lambda: first.said("ready"), timeout=15)
    await order(store, "a")
    await eventually(lambda: lines(tmp_path / "started") == ["a"])

    first.send(signal.SIGKILL)
    small(server, "two")

    await eventually(lambda: lines(tmp_path / "done") == ["a"], timeout=20)
    await eventually(lambda: drained(store))
    assert await published(server) == ["a"]
    info = await consumer(server, subjects.STREAM_COMMANDS, "scheduler-submit-workload")
    assert info.num_ack_pending == 0


async def test_a_loop_that_fails_is_started_again_and_the_rest_goes_on(
    server: NatsServer, store: Store, small: Any, tmp_path: Path
):
    child = small(server, loop_fails="true")

    await eventually(lambda: len(child.said("extra_loop_ran")) >= 3, timeout=15)
    await order(store, "a")

    await eventually(lambda: lines(tmp_path / "done") == ["a"])
    failed = child.said("loop_failed")[0]
    assert (failed["loop"], failed["error"], failed["level"]) == ("extra", "ZeroDivisionError", "error")
    assert "stack" in failed


async def test_no_server_ends_the_start_with_a_sentence(small: Any, redis: RedisServer, spawn: Spawn):
    port = free_port()
    child = spawn(*SMALL, nats_url=f"nats://127.0.0.1:{port}", redis_url=redis.url, connect_seconds="0.5")

    assert child.wait() == 1
    (line,) = child.said("start_failed")
    assert str(port) in line["error_text"]


async def test_sigterm_while_waiting_for_servers_ends_at_once(spawn: Spawn):
    child = spawn(*SMALL, nats_url=f"nats://127.0.0.1:{free_port()}", connect_seconds="60")
    await port_of(child)

    child.send(signal.SIGTERM)

    assert child.wait(5) == 0


async def test_a_wrong_setting_ends_the_start_naming_the_variable(spawn: Spawn):
    child = spawn(*SMALL, health_port="70000")

    assert child.wait() == 1
    assert "GPUBUS_HEALTH_PORT" in child.log.read_text()


async def test_print_settings_shows_no_secret(spawn: Spawn, tmp_path: Path):
    child = spawn(
        *SMALL, "--print-settings", redis_url="redis://scheduler:hunter2@127.0.0.1:1/0", secret_word="hunter3"
    )

    assert child.wait() == 0
    assert child.process.stdout
    text = child.process.stdout.read().decode()
    assert "hunter" not in text
    assert "GPUBUS_REDIS_URL=redis://scheduler:***@127.0.0.1:1/0" in text
    assert "GPUBUS_SECRET_WORD=***" in text


async def test_spans_are_linked_across_the_bus(server: NatsServer, store: Store, small: Any, tmp_path: Path):
    traces = tmp_path / "traces.jsonl"
    child = small(server, traces=f"file://{traces}")
    await eventually(lambda: child.said("ready"), timeout=15)
    await order(store, "a")
    await eventually(lambda: lines(tmp_path / "done") == ["a"])
    await eventually(lambda: drained(store))

    child.send(signal.SIGTERM)
    assert child.wait() == 0

    spans = {span["name"]: span for span in map(orjson.loads, traces.read_bytes().splitlines())}
    handled, sent = spans["process gpubus.cmd.scheduler.submit-workload"], spans["publish gpubus.evt.workload.queued"]
    assert handled["attributes"]["messaging.system"] == "nats"
    assert handled["attributes"]["messaging.consumer.group.name"] == "scheduler-submit-workload"
    assert sent["links"][0]["context"]["span_id"] == handled["context"]["span_id"]
    (fact,) = await kept(server, subjects.owner_stream("scheduler"))
    assert fact.envelope["traceparent"].split("-")[1] == handled["context"]["trace_id"].removeprefix("0x")


async def test_one_canonical_line_for_each_message_without_its_payload(
    server: NatsServer, store: Store, small: Any, tmp_path: Path
):
    child = small(server)
    await store.commit(
        Commit(commands=(SubmitWorkload(namespace="default", name="a", uid="u", spec={"word": "hunter2"}),))
    )
    await eventually(lambda: lines(tmp_path / "done") == ["a"], timeout=15)

    (line,) = await eventually(lambda: child.said("message_handled"))
    assert (line["handler"], line["outcome"], line["attempt"], line["service"]) == (
        "submit_workload",
        "handled",
        1,
        "scheduler",
    )
    assert line["correlation_id"] == line["message_id"]
    assert line["duration_ms"] > 0
    assert "hunter2" not in child.log.read_text()
