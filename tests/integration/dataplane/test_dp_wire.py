"""HTTP by hand: framing, reuse of connections on both sides, what is passed on and what is not."""

import asyncio
import json

import pytest

from tests.support.dataplane import (
    ANSWER,
    CHAT,
    PATIENCE,
    STREAM_HEAD,
    Engine,
    answer_chat,
    chat,
    chunk,
    delta,
    plain,
    post,
)
from tests.support.gateway import ADMIN_TOKEN
from tests.support.wait import eventually

KEY = f"authorization: Bearer {ADMIN_TOKEN}\r\n"


# The client's side.


async def test_answers_to_head_have_no_body_and_the_connection_goes_on(plane):
    async with plane.wire() as wire:
        for path in ("/v1/models", "/livez", "/readyz", "/metrics", "/version", "/v1/nope"):
            wire.send(f"HEAD {path} HTTP/1.1\r\nhost: x\r\n{KEY}\r\n".encode())
            told = await wire.reply(bodiless=True)
            wire.send(f"GET {path} HTTP/1.1\r\nhost: x\r\n{KEY}\r\n".encode())
            got = await wire.reply()

            assert told.status in {got.status, 405}
            assert got.raw
            if path.startswith("/v1/"):
                assert int(told.header("content-length")) == len(got.raw)


@pytest.mark.parametrize("path", [CHAT, "/v1/models"])
async def test_wrong_methods_are_told_the_right_ones(plane, path):
    for method in ("DELETE", "PUT", "OPTIONS"):
        got = await plane.get(path, method=method)

        assert got.status == (204 if method == "OPTIONS" else 405)
        assert ("POST" if path == CHAT else "GET") in got.header("allow")


async def test_pipelined_requests_are_answered_whole_and_in_order(plane):
    async def named(_, seen, writer):
        await asyncio.sleep(0.05 if seen.body["seed"] == 0 else 0)
        writer.write(plain(json.dumps({"n": seen.body["seed"]}).encode()))

    async with Engine(named) as engine:
        model = await plane.serve(engine.port)
        async with plane.wire() as wire:
            wire.send(b"".join(post(chat(model, seed=number)) for number in range(5)))
            replies = [await wire.reply() for _ in range(5)]
            wire.send(post(chat(model, seed=5)))
            replies.append(await wire.reply())

    assert [reply.body for reply in replies] == [{"n": number} for number in range(6)]


async def test_a_stream_and_a_pipelined_request_behind_it_do_not_mix(plane):
    async with Engine() as engine:
        model = await plane.serve(engine.port)
        async with plane.wire() as wire:
            wire.send(post(chat(model, stream=True)) + post(chat(model)))
            streamed, whole = await wire.reply(), await wire.reply()

    assert streamed.frames[-1] == "[DONE]"
    assert whole.raw == ANSWER


@pytest.mark.parametrize("cut", [1, 20, 60, 150])
async def test_a_request_in_pieces_is_one_request(plane, cut):
    async with Engine() as engine:
        model = await plane.serve(engine.port)
        raw = post(chat(model))
        async with plane.wire() as wire:
            for at in range(0, len(raw), cut):
                wire.send(raw[at : at + cut])
                await asyncio.sleep(0.001)
            got = await wire.reply()

    assert got.raw == ANSWER
    assert len(engine.seen) == 1


async def test_a_chunked_body_is_read_whole(plane):
    async with Engine() as engine:
        model = await plane.serve(engine.port)
        raw = json.dumps(chat(model)).encode()
        async with plane.wire() as wire:
            wire.send(f"POST {CHAT} HTTP/1.1\r\nhost: x\r\n{KEY}transfer-encoding: chunked\r\n\r\n".encode())
            for at in range(0, len(raw), 7):
                wire.send(chunk(raw[at : at + 7]))
            wire.send(b"0\r\ntrailer: x\r\n\r\n")
            got = await wire.reply()

    assert got.status == 200
    assert engine.seen[0].raw == raw
    assert engine.seen[0].header("content-length") == str(len(raw))
    assert not engine.seen[0].header("transfer-encoding")
    assert not engine.seen[0].header("trailer")


async def test_a_client_that_waits_for_100_continue_gets_it(plane):
    async with Engine() as engine:
        model = await plane.serve(engine.port)
        raw = json.dumps(chat(model)).encode()
        async with plane.wire() as wire:
            head, _, _ = post(raw, headers="expect: 100-continue\r\n").partition(b"\r\n\r\n")
            wire.send(head + b"\r\n\r\n")
            assert await wire.until(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            wire.send(raw)
            got = await wire.reply()

    assert (got.status, got.early) == (200, [])
    assert not engine.seen[0].header("expect")


@pytest.mark.parametrize(
    ("headers", "status"), [(KEY + "content-length: 99999999\r\n", 413), ("content-length: 10\r\n", 401)]
)
async def test_a_request_that_is_refused_is_not_asked_for_its_body(plane, headers, status):
    async with plane.wire() as wire:
        wire.send(f"POST {CHAT} HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\n{headers}\r\n".encode())
        got = await wire.reply()

    assert (got.status, got.early) == (status, [])
    assert got.error


async def test_100_continue_works_for_the_resource_api_too(plane):
    body = json.dumps({"metadata": {"name": "hundred"}, "spec": {"role": "viewer"}}).encode()
    async with plane.wire() as wire:
        path = "/apis/gpubus.io/v1/namespaces/default/apikeys"
        head, _, _ = post(body, path=path, headers="expect: 100-continue\r\n").partition(b"\r\n\r\n")
        wire.send(head + b"\r\n\r\n")
        assert await wire.until(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        wire.send(body)
        got = await wire.reply()

    assert (got.status, got.early) == (201, [])


NOT_HTTP = [
    f"POST {CHAT} HTTP/1.1\r\nhost: x\r\n{KEY}content-length: 3\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    f"POST {CHAT} HTTP/1.1\r\nhost: x\r\n{KEY}transfer-encoding: chunked\r\ncontent-length: 3\r\n\r\n0\r\n\r\n",
    f"POST {CHAT} HTTP/1.1\r\nhost: x\r\n{KEY}content-length: 3\r\ncontent-length: 4\r\n\r\nabcd",
    f"POST {CHAT} HTTP/1.1\r\nhost: x\r\n{KEY}content-length: -3\r\n\r\n",
    f"POST {CHAT} HTTP/1.1\r\nhost: x\r\n{KEY}content-length: 3x\r\n\r\nabc",
    f"POST {CHAT} HTTP/1.1\r\nhost: x\r\n{KEY}transfer-encoding: chunked\r\n\r\nxyz\r\n",
    f"POST {CHAT} HTTP/1.1\r\nhost: x\r\n{KEY}transfer-encoding: chunked\r\n\r\nffffffffffffffffff\r\n",
    f"POST {CHAT} HTTP/1.1\r\nhost: x\r\n{KEY}x-bad: a\rb\r\n\r\n",
    f"POST {CHAT} HTTP/1.1\r\nhost: x\r\n{KEY}x-bad : a\r\n\r\n",
    f"POST {CHAT} HTTP/1.1\r\nhost: x\r\n{KEY}x-nul: a\x00b\r\n\r\n",
    "GET /v1/models\xe9 HTTP/1.1\r\nhost: x\r\n\r\n",
    "CONNECT example.com:443 HTTP/1.1\r\nhost: x\r\n\r\n",
    "GET  HTTP/1.1\r\n\r\n",
    "BREW /v1/models HTTP/1.1\r\nhost: x\r\n\r\n",
    "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 a TLS hello",
]


@pytest.mark.parametrize("raw", NOT_HTTP)
async def test_what_is_no_honest_request_is_refused_and_the_connection_ends(plane, raw):
    async with plane.wire() as wire:
        wire.send(raw.encode("latin-1") + post(chat("smuggled")))
        got = await wire.reply()
        rest = await wire.ended()

    assert got.status == 400
    assert got.error["type"] == "invalid_request_error"
    assert got.header("connection") == "close"
    assert rest == b""


@pytest.mark.parametrize("where", ["value", "many", "url", "endless"])
async def test_a_head_without_measure_is_refused_before_it_fills_the_memory(plane, where):
    big = "x" * 3_000_000
    heads = {
        "value": f"GET /v1/models HTTP/1.1\r\nhost: x\r\n{KEY}x-big: {big}\r\n\r\n",
        "many": f"GET /v1/models HTTP/1.1\r\nhost: x\r\n{KEY}" + "x-small: 1\r\n" * 200_000,
        "url": f"GET /v1/models/{big} HTTP/1.1\r\nhost: x\r\n{KEY}\r\n",
        "endless": "GET /v1/models HTTP/1.1\r\nx-name-" + big,
    }
    async with plane.wire() as wire:
        wire.send(heads[where].encode())
        try:
            got = await wire.reply()
        except (ConnectionResetError, asyncio.IncompleteReadError):
            return  # it hung up on what was still being sent

    assert got.status == 431
    assert got.error["type"] == "invalid_request_error"


async def test_a_long_but_honest_head_is_taken(plane):
    async with Engine() as engine:
        model = await plane.serve(engine.port)
        async with plane.wire() as wire:
            for _ in range(4):
                wire.send(post(chat(model), headers="x-long: " + "x" * 40_000 + "\r\n"))
                assert (await wire.reply()).status == 200


async def test_what_comes_behind_the_body_is_no_header(plane):
    async with Engine() as engine:
        model = await plane.serve(engine.port)
        raw = json.dumps(chat(model)).encode()
        trailers = f"{KEY}x-request-id: from-behind\r\n"
        async with plane.wire() as wire:
            for key, status in (("", 401), (KEY, 200)):
                head = f"POST {CHAT} HTTP/1.1\r\nhost: x\r\n{key}transfer-encoding: chunked\r\n\r\n"
                wire.send(head.encode() + chunk(raw) + f"0\r\n{trailers}\r\n".encode())
                assert (await wire.reply()).status == status

    assert engine.seen[0].header("x-request-id") != "from-behind"


async def test_garbage_behind_a_request_does_not_get_into_its_answer(plane):
    async def slow(_, seen, writer):
        writer.write(STREAM_HEAD + chunk(delta("a")))
        await writer.drain()
        await asyncio.sleep(PATIENCE)

    async with Engine(slow) as engine:
        model = await plane.serve(engine.port)
        async with plane.wire() as wire:
            wire.send(post(chat(model, stream=True)))
            await wire.until(b"\n\n")
            wire.send(b"\x00garbage\r\n\r\n")
            rest = await wire.ended()
        await eventually(lambda: engine.open == 0, PATIENCE / 2)

    assert b"400" not in rest


async def test_an_offered_upgrade_is_ignored_and_the_connection_goes_on(plane):
    async with Engine() as engine:
        model = await plane.serve(engine.port)
        offer = "connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAAQAAP__\r\n"
        async with plane.wire() as wire:
            for headers in (offer, ""):
                wire.send(post(chat(model), headers=headers))
                got = await wire.reply()
                assert got.raw == ANSWER, got

    assert not engine.seen[0].header("upgrade")
    assert not engine.seen[0].header("http2-settings")


async def test_connection_close_and_http_1_0_are_honoured(plane):
    async with Engine() as engine:
        model = await plane.serve(engine.port)
        old = post(chat(model)).replace(b"HTTP/1.1", b"HTTP/1.0", 1)
        for raw in (post(chat(model), headers="connection: close\r\n"), old):
            async with plane.wire() as wire:
                wire.send(raw)
                got = await wire.reply()

                assert got.raw == ANSWER
                assert got.header("connection") == "close"
                assert await wire.ended() == b""

    assert {seen.header("connection") for seen in engine.seen} == {""}


async def test_names_in_the_path_may_be_escaped(plane):
    model = await plane.serve()

    for path in (f"/v1/models/default%2F{model}", f"/v1/models/default/{model}", f"/v1/%6Dodels/{model}"):
        assert (await plane.get(path)).body["id"] == model
    assert (await plane.get("/v1/models/%F0%9F%A6%89%0D%0Ax-evil:1")).status == 404


# What is passed on.


async def test_trace_and_request_id_are_passed_and_hop_headers_and_keys_are_not(plane):
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    headers = (
        f"traceparent: {trace}\r\ntracestate: a=1\r\nx-request-id: my-id.1:2_3\r\nuser-agent: mine\r\naccept: */*\r\n"
        "accept-encoding: gzip, br\r\ncookie: secret=1\r\nx-api-key: " + ADMIN_TOKEN + "\r\nte: trailers\r\n"
        "x-gpubus-replica: forged\r\nproxy-authorization: Basic x\r\nconnection: keep-alive, x-hop\r\nx-hop: 1\r\n"
    )
    async with Engine() as engine:
        model = await plane.serve(engine.port)

        got = await plane.ask(chat(model), headers=headers)

    (seen,) = engine.seen
    assert seen.header("traceparent") == trace
    assert seen.header("tracestate") == "a=1"
    assert seen.header("x-request-id") == "my-id.1:2_3" == got.header("x-request-id")
    assert seen.header("user-agent") == "mine"
    assert seen.header("host") == f"127.0.0.1:{engine.port}"
    assert seen.header("content-type") == "application/json"
    known = {
        "host",
        "content-type",
        "content-length",
        "x-request-id",
        "traceparent",
        "tracestate",
        "user-agent",
        "accept",
    }
    assert {name for name, _ in seen.headers} == known
    assert ADMIN_TOKEN not in str(seen)


@pytest.mark.parametrize("sent", ["", "x" * 129, "a b", "a\tb", "é", "<script>", "a\\r\\nx-evil: 1", "${jndi:x}"])
async def test_a_request_id_that_could_do_harm_is_replaced(plane, sent):
    async with Engine() as engine:
        model = await plane.serve(engine.port)

        got = await plane.ask(chat(model), headers=f"x-request-id: {sent}\r\n")

    used = engine.seen[0].header("x-request-id")
    assert used == got.header("x-request-id")
    assert used.isalnum()
    assert used != sent
    assert not got.header("x-evil")


async def test_the_answers_headers_are_the_engines_but_for_its_connection(plane):
    headers = (
        "server: engine\r\ndate: yesterday\r\nconnection: keep-alive\r\nkeep-alive: timeout=5\r\nx-request-id: its-own\r\n"
        "x-gpubus-replica: secret\r\nx-ratelimit-left: 5\r\n"
    )

    async def answer(_, seen, writer):
        writer.write(plain(ANSWER, headers=headers))

    async with Engine(answer) as engine:
        model = await plane.serve(engine.port)

        got = await plane.ask(chat(model), headers="x-request-id: mine\r\n")

    assert got.header("x-request-id") == "mine"
    assert got.header("x-ratelimit-left") == "5"
    for name in ("server", "keep-alive", "x-gpubus-replica", "connection"):
        assert not got.header(name)
    assert got.header("date") != "yesterday"


async def test_an_engine_cannot_write_headers_into_the_answer(plane):
    async def evil(_, seen, writer):
        writer.write(plain(ANSWER, headers="x-a: 1\nx-evil: 2\r\n"))

    async with Engine(evil) as engine:
        model = await plane.serve(engine.port)

        got = await plane.ask(chat(model))

    assert got.status in {200, 502}
    assert b"\n" not in got.header("x-a").encode()


# The engine's side.


async def test_connections_to_the_engine_are_used_again(plane):
    async with Engine() as engine:
        model = await plane.serve(engine.port)
        for stream in (False, True, False, True):
            assert (await plane.ask(chat(model, stream=stream))).status == 200

    assert engine.connections == 1


@pytest.mark.parametrize("headers", ["connection: close\r\n", ""], ids=["engine-says-close", "http-1-0"])
async def test_a_connection_that_the_engine_ends_is_not_used_again(plane, headers):
    async def once(_, seen, writer):
        raw = plain(ANSWER, headers=headers)
        writer.write(raw if headers else raw.replace(b"HTTP/1.1", b"HTTP/1.0", 1))

    async with Engine(once) as engine:
        model = await plane.serve(engine.port)
        replies = [await plane.ask(chat(model)) for _ in range(3)]

    assert [reply.status for reply in replies] == [200] * 3
    assert engine.connections == 3


async def test_idle_connections_that_the_engine_closed_cost_nobody_a_request(plane):
    async with Engine() as engine:
        model = await plane.serve(engine.port)
        for _ in range(5):
            replies = await asyncio.gather(*(plane.ask(chat(model)) for _ in range(8)))
            assert {reply.status for reply in replies} == {200}
            engine.hang_up()


@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_connection_that_closes_as_it_is_used_again_costs_nobody_a_request(plane, stream, reset):
    async def once_a_connection(engine, seen, writer):
        if sum(other.connection == seen.connection for other in engine.seen) == 1:
            await answer_chat(engine, seen, writer)
        elif reset:
            writer.transport.abort()
        else:
            writer.close()

    async with Engine(once_a_connection) as engine:
        model = await plane.serve(engine.port)
        replies = [await plane.ask(chat(model, stream=stream)) for _ in range(6)]

    assert [reply.status for reply in replies] == [200] * 6
    assert all(reply.whole and (not stream or reply.frames[-1] == "[DONE]") for reply in replies)


async def test_a_restarted_engine_is_used_at_once(plane):
    engine = Engine()
    async with engine:
        model = await plane.serve(engine.port)
        assert (await plane.ask(chat(model))).status == 200
    assert (await plane.ask(chat(model))).status == 502
    async with engine:
        assert (await plane.ask(chat(model))).status == 200


async def test_late_bytes_of_one_answer_do_not_start_the_next(plane):
    async def chatty(_, seen, writer):
        writer.write(plain(ANSWER))
        await writer.drain()
        await asyncio.sleep(0.05)
        writer.write(plain(b'{"late":1}'))

    async with Engine(chatty) as engine:
        model = await plane.serve(engine.port)
        replies = []
        for _ in range(3):
            replies.append(await plane.ask(chat(model)))
            await asyncio.sleep(0.1)

    assert [reply.raw for reply in replies] == [ANSWER] * 3


async def test_a_client_in_the_midst_of_a_too_large_body_still_reads_why(plane):
    """With `Connection: close` a reset for what was not read would overtake the answer."""
    async with plane.wire() as wire:
        wire.send(
            f"POST {CHAT} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{KEY}content-length: 99999999\r\n\r\n".encode()
        )
        for _ in range(20):
            wire.send(b"x" * 65536)
            await asyncio.sleep(0.01)
        got = await wire.reply()

    assert got.status == 413
    assert "the body has more than" in got.error["message"]
