"""Two workers and their gateway process: keys that come and go, usage that is counted once, kills and restarts."""

import asyncio
import json
import signal
from collections import Counter

import msgspec
import pytest

from shared.subjects import owner_stream
from tests.support.bus import kept
from tests.support.dataplane import PATIENCE, STREAM_HEAD, Engine, Plane, answer_chat, chat, chunk, delta, plain, post
from tests.support.servers import free_port
from tests.support.wait import eventually

MARK = "naïve 🦉"


@pytest.fixture(scope="module")
def plane():
    running = Plane(workers=2, GPUBUS_FIRST_BYTE_SECONDS="20")
    try:
        yield running.start()
    finally:
        running.close()


async def everywhere(plane, check):
    """Wait until an answer is as it should be ten times in a row, so that both workers gave some."""

    async def ten_times():
        for _ in range(10):
            assert await check()
        return True

    await eventually(ten_times, PATIENCE)


async def status(plane, model, token):
    return (await plane.ask(chat(model), token=token)).status


async def usage(plane, model):
    """Requests and tokens by outcome, out of every stored fact; a batch that came twice is an error."""
    counts: Counter[str] = Counter()
    batches = []
    for message in await kept(plane.gateway.nats, owner_stream("gateway")):
        if not message.subject.startswith("gpubus.evt.request.metered."):
            continue
        data = message.envelope["data"]
        batches.append((data["name"], data["batch"]))
        for row in data["rows"]:
            if row["model"] == model:
                counts[row["outcome"]] += row["requests"]
                counts["input"] += row["inputTokens"]
                counts["output"] += row["outputTokens"]
    assert len(batches) == len(set(batches))
    return dict(counts)


async def counted(plane, model, wanted):
    """Wait until the facts say this, and see that they go on saying so."""

    async def as_wanted():
        found = await usage(plane, model)
        assert found == wanted
        return True

    await eventually(as_wanted, PATIENCE, 0.1)
    await asyncio.sleep(1.5)  # one more flush
    assert await usage(plane, model) == wanted


async def metric(plane, line):
    """One sample of the public /metrics."""
    got = await plane.get("/metrics")
    assert got.status == 200, got.raw
    for text in got.raw.decode().splitlines():
        if text.startswith(f"{line} "):
            return float(text.rpartition(" ")[2])
    return 0.0


def leaving():
    async def endless(_, seen, writer):
        writer.write(STREAM_HEAD + chunk(delta("a")) + chunk(b": ping\n\n") + chunk(delta("b")))
        await asyncio.sleep(PATIENCE)

    return endless


# Health.


async def test_health_and_metrics_are_open_on_the_public_port(plane):
    for path in ("/livez", "/readyz", "/metrics"):
        async with plane.wire() as wire:
            wire.send(f"GET {path} HTTP/1.1\r\nhost: x\r\n\r\n".encode())
            got = await wire.reply()

        assert got.status == 200
        assert got.raw
    for worker in plane.workers:
        assert worker.http("/readyz").startswith("HTTP/1.1 200")
        assert worker.http("/livez").startswith("HTTP/1.1 200")
        assert "gpubus" in worker.http("/metrics")


# Keys.


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ("", "no key was sent"),
        ("authorization: Bearer gb_00000000000000000000000000000000\r\n", "not known"),
        ("authorization: Basic dXNlcjpwdw==\r\n", "must be: Bearer"),
        ("authorization: Bearer \r\n", "no key|not in a form|must be"),
        ("authorization: Bearer a b\r\n", "not in a form"),
        ("x-api-key: gb_00000000000000000000000000000000\r\n", "not known"),
    ],
)
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/models"])
async def test_without_a_good_key_nothing_is_served(plane, path, headers, said):
    async with plane.wire() as wire:
        method = "GET" if path == "/v1/models" else "POST"
        wire.send(f"{method} {path} HTTP/1.1\r\nhost: x\r\n{headers}content-length: 2\r\n\r\n{{}}".encode())
        got = await wire.reply()

    assert got.status == 401
    assert got.error["code"] == "invalid_api_key"
    assert got.header("www-authenticate") == "Bearer"
    assert any(part in got.error["message"] for part in said.split("|"))


async def test_a_key_works_once_made_and_never_again_once_deleted(plane):
    async with Engine() as engine:
        model = await plane.serve(engine.port)
        token = await asyncio.to_thread(plane.gateway.new_key, "short-lived", "model-user")
        await everywhere(plane, lambda: status_is(plane, model, token, 200))
        async with plane.wire() as wire:  # one that is already trusted
            wire.send(post(chat(model), token=token))
            assert (await wire.reply()).status == 200
            path = "/apis/gpubus.io/v1/namespaces/default/apikeys/short-lived"
            await asyncio.to_thread(plane.gateway.call, "DELETE", path)

            await everywhere(plane, lambda: status_is(plane, model, token, 401))
            wire.send(post(chat(model), token=token))
            assert (await wire.reply()).status == 401


async def status_is(plane, model, token, wanted):
    got = await plane.ask(chat(model), token=token)
    return got.status == wanted


async def test_a_disabled_key_is_refused_until_it_is_enabled(plane):
    path = "/apis/gpubus.io/v1/namespaces/default/apikeys/switched"
    async with Engine() as engine:
        model = await plane.serve(engine.port)
        token = await asyncio.to_thread(plane.gateway.new_key, "switched", "model-user")
        for disabled, wanted in ((False, 200), (True, 401), (False, 200)):
            patch = {"spec": {"disabled": disabled}}
            content = "application/merge-patch+json"
            answer = await asyncio.to_thread(plane.gateway.call, "PATCH", path, patch, content=content)
            assert answer.status == 200, answer.raw

            await everywhere(plane, lambda wanted=wanted: status_is(plane, model, token, wanted))


async def test_a_key_opens_its_namespaces_models_and_no_other(plane):
    async with Engine() as engine:
        here = await plane.serve(engine.port)
        there = await plane.serve(engine.port, namespace="gpustack-system")
        token = await asyncio.to_thread(plane.gateway.new_key, "local", "model-user")
        await everywhere(plane, lambda: status_is(plane, here, token, 200))

        listed = {entry["id"] for entry in (await plane.get("/v1/models", token=token)).body["data"]}
        refused = [await status(plane, name, token) for name in (there, f"gpustack-system/{there}")]

    assert here in listed
    assert there not in listed
    assert refused == [404, 404]
    assert (await plane.get(f"/v1/models/gpustack-system/{there}", token=token)).status == 404


# Usage.


async def test_every_request_is_counted_once_with_its_outcome(plane):
    async def moody(engine, seen, writer):
        mood = seen.body["user"]
        if mood == "refuse":
            writer.write(plain(b'{"error":{"message":"no"}}', "400 Bad Request"))
        elif mood == "die":
            writer.close()
        elif mood == "break":
            writer.write(STREAM_HEAD + chunk(delta("a")))
            await writer.drain()
            writer.close()
        elif mood == "hang":
            await leaving()(engine, seen, writer)
        else:
            await answer_chat(engine, seen, writer)

    async with Engine(moody) as engine:
        model = await plane.serve(engine.port)
        whole = [plane.ask(chat(model, user="ok")) for _ in range(10)]
        streamed = [plane.ask(chat(model, user="ok", stream=True)) for _ in range(10)]
        refused = [plane.ask(chat(model, user="refuse", stream=True)) for _ in range(3)]
        died = [plane.ask(chat(model, user="die")) for _ in range(2)]
        broke = [plane.ask(chat(model, user="break", stream=True)) for _ in range(2)]
        replies = await asyncio.gather(*whole, *streamed, *refused, *died, *broke)
        for _ in range(4):
            async with plane.wire() as wire:
                wire.send(post(chat(model, user="hang", stream=True)))
                await wire.until(b'"b"')
        wrong = await asyncio.gather(plane.ask(b"{"), plane.ask(chat("nope")), plane.ask(chat(model), token=""))

        assert Counter(reply.status for reply in replies) == {200: 22, 400: 3, 502: 2}
        assert [reply.status for reply in wrong] == [400, 404, 401]
        tokens = {"input": 20 * 11, "output": 20 * 7 + 2 * 1 + 4 * 2}
        outcomes = {"ok": 20, "client_error": 3, "upstream_error": 4, "cancelled": 4}
        await counted(plane, model, outcomes | tokens)

    async def both_workers():
        names = [worker.name for worker in plane.workers]
        lines = [f'gpubus_requests_total{{model="{model}",outcome="ok",worker="{name}"}}' for name in names]
        values = [await metric(plane, line) for line in lines]
        return sum(values) == 20 and all(values)

    await eventually(both_workers, PATIENCE, 0.1)


# Kills.


async def test_workers_serve_while_the_gateway_process_is_dead_and_take_news_when_it_is_back(plane):
    async with Engine() as engine:
        model = await plane.serve(engine.port)
        await everywhere(plane, lambda: known(plane, model))
        plane.gateway.child.kill()

        statuses = {(await plane.ask(chat(model, stream=bool(n % 2)))).status for n in range(20)}
        away = await plane.get("/readyz")
        listed = await plane.get("/v1/models")
        alive = await plane.get("/livez")
        third = plane.worker("gateway-worker-9")
        try:
            third.start().ready()  # from the snapshot on disk
        finally:
            third.end()

        await asyncio.to_thread(plane.gateway.child.start().ready)
        token = await asyncio.to_thread(plane.gateway.new_key, "after-the-kill", "model-user")
        await everywhere(plane, lambda: status_is(plane, model, token, 200))
        total = (await usage(plane, model)).get("ok", 0)
        assert total >= 20

    assert statuses == {200}
    assert (listed.status, alive.status) == (200, 200)
    assert away.status == 503
    assert "still served" in away.body["message"], away
    await eventually(lambda: ready(plane), PATIENCE)


async def known(plane, model):
    return await plane.knows(model, ready=True)


async def ready(plane):
    return (await plane.get("/readyz")).status == 200


async def test_usage_of_the_time_without_the_gateway_process_is_counted_once(plane):
    async with Engine() as engine:
        model = await plane.serve(engine.port)
        await everywhere(plane, lambda: known(plane, model))
        plane.gateway.child.kill()
        for _ in range(12):
            assert (await plane.ask(chat(model))).status == 200
        await asyncio.to_thread(plane.gateway.child.start().ready)

        await counted(plane, model, {"ok": 12, "input": 12 * 11, "output": 12 * 7})


async def test_the_feed_goes_over_to_another_gateway_process_of_the_host(plane):
    second = plane.gateway.copy("gateway-second")
    try:
        second.start().ready()
        plane.gateway.child.kill()
        async with Engine() as engine:
            model = await plane.serve(engine.port)
            await everywhere(plane, lambda: known(plane, model))
        await asyncio.to_thread(plane.gateway.child.start().ready)
        second.kill()
        async with Engine() as engine:
            model = await plane.serve(engine.port)
            await everywhere(plane, lambda: known(plane, model))
            await eventually(lambda: ready(plane), PATIENCE)
        # The newest goes while an older one stays: a worker that starts now must still find the feed.
        second.start().ready()
        second.kill()
        plane.workers[0].kill()
        plane.workers[0].start().ready()
        async with Engine() as engine:
            model = await plane.serve(engine.port)
            await everywhere(plane, lambda: known(plane, model))
    finally:
        second.end()


async def test_a_killed_worker_leaves_the_other_serving_and_its_usage_to_its_successor(plane):
    async with Engine() as engine:
        model = await plane.serve(engine.port)
        await everywhere(plane, lambda: known(plane, model))
        plane.gateway.child.kill()
        for _ in range(20):
            assert (await plane.ask(chat(model))).status == 200
        await eventually(lambda: spooled(plane, model) == 20, PATIENCE)
        first = plane.workers[0]
        first.kill()

        assert {(await plane.ask(chat(model))).status for _ in range(10)} == {200}
        first.start().ready()
        await asyncio.to_thread(plane.gateway.child.start().ready)
        await counted(plane, model, {"ok": 30, "input": 30 * 11, "output": 30 * 7})


def spooled(plane, model):
    """Requests that wait on disk."""
    total = 0
    for worker in plane.workers:
        path = plane.gateway.dir / "run" / f"usage-{worker.name}.spool"
        for _, _, rows in msgspec.msgpack.decode(path.read_bytes()) if path.exists() else ():
            total += sum(row[5] for row in rows if row[2] == model)
    return total


async def test_a_worker_that_is_told_to_end_finishes_what_it_has_begun(plane):
    go = asyncio.Event()

    async def patient(_, seen, writer):
        writer.write(STREAM_HEAD + chunk(delta(MARK)))
        await go.wait()
        writer.write(chunk(delta(MARK)) + chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")

    async with Engine(patient) as engine:
        model = await plane.serve(engine.port)
        await everywhere(plane, lambda: known(plane, model))
        running = [asyncio.ensure_future(plane.ask(chat(model, stream=True))) for _ in range(20)]
        await eventually(lambda: len(engine.seen) == 20, PATIENCE)
        first = plane.workers[0]
        first.send(signal.SIGTERM)
        await eventually(lambda: not first.http("/readyz").startswith("HTTP/1.1 200"), PATIENCE)
        go.set()
        replies = await asyncio.gather(*running)
        assert await asyncio.to_thread(first.ended) == 0
        first.start().ready()

    assert [reply.status for reply in replies] == [200] * 20
    for reply in replies:
        texts = [json.loads(data)["choices"][0]["delta"]["content"] for data in reply.frames[:-1]]
        assert texts == [MARK] * 2


async def test_without_patience_a_worker_refuses_as_soon_as_it_is_alone(plane):
    port = free_port()
    strict = plane.worker("gateway-worker-strict", GPUBUS_MAX_STALE="0", GPUBUS_PORT=str(port))

    async def answers(wanted):
        return (await plane.ask(chat(model), port=port)).status == wanted

    async with Engine() as engine:
        model = await plane.serve(engine.port)
        try:
            strict.start().ready()
            await eventually(lambda: answers(200), PATIENCE)
            plane.gateway.child.kill()
            await eventually(lambda: answers(503), PATIENCE)
            assert not strict.http("/readyz").startswith("HTTP/1.1 200")
            await asyncio.to_thread(plane.gateway.child.start().ready)
            await eventually(lambda: answers(200), PATIENCE)
        finally:
            strict.end()
