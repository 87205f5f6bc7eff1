"""What a client gets for what the engine does: whole, streamed, broken, slow, gone."""

import asyncio
import json
import socket

import openai
import pytest

from tests.support.dataplane import (
    ANSWER,
    END_FRAME,
    PATIENCE,
    STREAM_HEAD,
    USAGE,
    USAGE_FRAME,
    Engine,
    Wire,
    answer_chat,
    chat,
    chunk,
    delta,
    plain,
    post,
)
from tests.support.gateway import ADMIN_TOKEN
from tests.support.servers import free_port
from tests.support.wait import eventually


def client(plane, token=ADMIN_TOKEN):
    return openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{plane.port}/v1", api_key=token, max_retries=0)


def writes(*parts, close=False):
    """An engine that answers these bytes, whatever it is asked."""

    async def behave(_, seen, writer):
        for part in parts:
            writer.write(part)
            await writer.drain()
        if close:
            writer.close()

    return behave


# The official client.


async def test_openai_client_reads_a_whole_answer(plane):
    async with Engine() as engine, client(plane) as api:
        model = await plane.serve(engine.port)

        answer = await api.chat.completions.create(model=model, messages=[{"role": "user", "content": "hi"}])

    assert answer.choices[0].message.content == "naïve 🦉"
    assert answer.usage.prompt_tokens == 11


@pytest.mark.parametrize("wanted", [True, False])
async def test_openai_client_reads_a_stream_with_usage_only_when_asked(plane, wanted):
    options = {"stream_options": {"include_usage": True}} if wanted else {}
    async with Engine() as engine, client(plane) as api:
        model = await plane.serve(engine.port)

        stream = await api.chat.completions.create(
            model=model, messages=[{"role": "user", "content": "hi"}], stream=True, **options
        )
        chunks = [part async for part in stream]

    assert "".join(part.choices[0].delta.content for part in chunks if part.choices) == "naïve 🦉"
    assert [part.usage.total_tokens for part in chunks if not part.choices] == ([18] if wanted else [])
    assert engine.seen[0].body["stream_options"] == {"include_usage": True}


async def test_openai_client_raises_its_own_classes(plane):
    async with client(plane) as api:
        with pytest.raises(openai.NotFoundError) as missing:
            await api.chat.completions.create(model="nope", messages=[{"role": "user", "content": "hi"}])
        with pytest.raises(openai.BadRequestError) as wrong:
            await api.chat.completions.create(model="nope", messages=[])
    async with client(plane, "gb_" + "0" * 32) as stranger:
        with pytest.raises(openai.AuthenticationError) as unknown:
            await stranger.models.list()

    assert missing.value.code == "model_not_found"
    assert (wrong.value.param, wrong.value.type) == ("messages", "invalid_request_error")
    assert unknown.value.code == "invalid_api_key"


async def test_openai_client_lists_and_embeds(plane):
    vector = {"object": "embedding", "index": 0, "embedding": [0.5]}
    body = {"object": "list", "data": [vector], "model": "m", "usage": {"prompt_tokens": 12, "total_tokens": 12}}
    async with Engine(writes(plain(json.dumps(body).encode()))) as engine, client(plane) as api:
        model = await plane.serve(engine.port)

        listed = [entry.id async for entry in api.models.list()]
        embedded = await api.embeddings.create(model=model, input="hi", encoding_format="float")

    assert model in listed
    assert embedded.data[0].embedding == [0.5]


async def test_openai_client_raises_when_a_stream_breaks(plane):
    async with Engine(writes(STREAM_HEAD, chunk(delta("a")), close=True)) as engine, client(plane) as api:
        model = await plane.serve(engine.port)
        stream = await api.chat.completions.create(
            model=model, messages=[{"role": "user", "content": "hi"}], stream=True
        )

        with pytest.raises(openai.APIError, match="broke off"):
            [part async for part in stream]


# Bodies on their way.


async def test_a_request_without_stream_arrives_as_it_was_sent(plane):
    async with Engine() as engine:
        model = await plane.serve(engine.port)
        raw = f'{{ "seed":123456789012345678901234567890, "x":1.10,"model":"{model}","u":"\\u00e9é🦉", "messages":[{{"role":"user"}}]}}'

        got = await plane.ask(raw.encode())

    assert got.status == 200
    assert engine.seen[0].raw == raw.encode()
    assert got.raw == ANSWER


async def test_a_changed_request_keeps_what_it_does_not_change(plane):
    async with Engine() as engine:
        model = await plane.serve(engine.port)
        kept = '"seed":123456789012345678901234567890,"x":1.10,"u":"\\u00e9é🦉","unknown":{"a":[1e5]}'
        raw = f'{{"model":"default/{model}",{kept},"stream":true,"messages":[{{"role":"user"}}]}}'

        got = await plane.ask(raw.encode())

    assert got.whole
    assert kept.encode() in engine.seen[0].raw
    assert engine.seen[0].body["model"] == model


@pytest.mark.parametrize(
    ("body", "param", "said"),
    [
        (b'{"model": ', None, "not JSON"),
        (b"[]", None, "JSON object"),
        (b"\xff", None, "not JSON"),
        ({"messages": [{"role": "user"}]}, "model", "model is required"),
        ({"model": "x"}, "messages", "messages"),
        (b'{"model":"x","model":"y"}', "model", "twice"),
    ],
)
async def test_a_wrong_body_is_a_400_that_names_it(plane, body, param, said):
    got = await plane.ask(body)

    assert got.status == 400
    assert got.error["param"] == param
    assert got.error["type"] == "invalid_request_error"
    assert said in got.error["message"]


async def test_unknown_model_is_404_and_a_waiting_one_503(plane):
    waiting = await plane.serve()

    missing, late = await plane.ask(chat("nope")), await plane.ask(chat(waiting))

    assert (missing.status, missing.error["code"], missing.error["param"]) == (404, "model_not_found", "model")
    assert late.status == 503
    assert late.header("retry-after")
    assert "its replicas are starting" in late.error["message"]


async def test_an_unknown_path_is_404_and_does_not_blame_the_model(plane):
    got = await plane.ask({}, path="/v1/chat/complete")

    assert (got.status, got.error["code"]) == (404, "unknown_url")


@pytest.mark.parametrize("size", [1 << 20, (1 << 20) + 1])
@pytest.mark.parametrize("chunked", [False, True])
async def test_the_limit_of_a_body_is_exact(plane, size, chunked):
    async with Engine() as engine:
        model = await plane.serve(engine.port)
        bare = json.dumps(chat(model, pad="")).encode()
        raw = bare.replace(b'"pad": ""', b'"pad": "' + b"x" * (size - len(bare)) + b'"')
        assert len(raw) == size

        if chunked:
            async with plane.wire() as wire:
                wire.send(
                    f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {ADMIN_TOKEN}\r\n"
                    "transfer-encoding: chunked\r\n\r\n".encode()
                )
                wire.send(b"".join(chunk(raw[at : at + 50_000]) for at in range(0, size, 50_000)) + b"0\r\n\r\n")
                got = await wire.reply()
        else:
            got = await plane.ask(raw)

    assert got.status == (200 if size <= 1 << 20 else 413)
    assert [seen.raw for seen in engine.seen] == ([raw] if got.status == 200 else [])
    if got.status == 413:
        assert got.error["code"] == "request_too_large"


# Engines that fail.


async def test_refusals_of_the_engine_come_as_they_are(plane):
    refusal = json.dumps({"error": {"message": "too long", "type": "x", "param": None, "code": 400}}).encode()
    for status, stream in (("400 Bad Request", True), ("503 Service Unavailable", True), ("422 Unprocessable", False)):
        async with Engine(writes(plain(refusal, status))) as engine:
            model = await plane.serve(engine.port)

            got = await plane.ask(chat(model, stream=stream))

        assert got.status == int(status[:3])
        assert got.header("content-type") == "application/json"
        assert got.raw == refusal
        assert len(engine.seen) == 1


@pytest.mark.parametrize(
    "parts",
    [(), (b"HTTP/1.1 200",), (STREAM_HEAD,), (b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n",)],
    ids=["nothing", "half-a-head", "only-the-head", "only-a-head-without-length"],
)
async def test_an_engine_that_dies_before_its_first_byte_is_replaced_by_another(plane, parts):
    async with Engine(writes(*parts, close=True)) as bad, Engine() as good:
        model = await plane.serve(bad.port, good.port)
        while not bad.seen:
            got = await plane.ask(chat(model, stream=True))

            assert got.status == 200
            assert got.frames[-1] == "[DONE]"
            assert "error" not in got.raw.decode()


async def test_nobody_listening_is_replaced_by_another_and_alone_is_a_502(plane):
    async with Engine() as good:
        both, alone = await plane.serve(free_port(), good.port), await plane.serve(free_port())

        replies = [await plane.ask(chat(both)) for _ in range(4)]
        got = await plane.ask(chat(alone))

    assert [reply.status for reply in replies] == [200] * 4
    assert got.status == 502
    assert got.header("retry-after")
    assert "cannot connect: Connection refused" in got.error["message"]
    assert "127.0.0.1" not in got.error["message"]


@pytest.mark.parametrize("stream", [False, True])
async def test_when_all_engines_die_it_is_a_502_and_no_empty_stream(plane, stream):
    async with Engine(writes(STREAM_HEAD, close=True)) as one, Engine(writes(close=True)) as two:
        model = await plane.serve(one.port, two.port)

        got = await plane.ask(chat(model, stream=stream))

    assert got.status == 502
    assert got.error["type"] == "server_error"


@pytest.mark.parametrize(
    "parts",
    [
        (STREAM_HEAD, chunk(delta("a")), chunk(delta("b"))),
        (STREAM_HEAD, chunk(delta("a")), chunk(delta("b") + b'data: {"cho')),
        (STREAM_HEAD, chunk(delta("a")), chunk(delta("b")), b"zz\r\nthis is no chunk"),
        (b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n", delta("a"), delta("b")),
        (b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 9999\r\n\r\n", delta("a"), delta("b")),
    ],
    ids=["between-frames", "in-a-frame", "broken-chunk", "without-length", "with-length"],
)
async def test_an_engine_that_dies_in_mid_stream_ends_it_with_an_error_frame(plane, parts):
    async with Engine(writes(*parts, close=True)) as bad, Engine() as other:
        model = await plane.serve(bad.port, other.port)
        while not bad.seen:
            got = await plane.ask(chat(model, stream=True))

    assert got.status == 200
    assert got.whole
    bodies = [json.loads(data) for data in got.frames]
    assert [body["choices"][0]["delta"]["content"] for body in bodies[:-1]] == ["a", "b"]
    assert set(bodies[-1]["error"]) == {"message", "type", "param", "code"}
    assert "[DONE]" not in got.frames


async def test_a_stream_without_length_that_says_it_ended_has_ended(plane):
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
    async with Engine(writes(head, delta("a"), END_FRAME, close=True)) as engine:
        model = await plane.serve(engine.port)

        got = await plane.ask(chat(model, stream=True))

    assert got.raw == delta("a") + END_FRAME


@pytest.mark.parametrize(
    "parts",
    [
        (b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n", b'{"a"'),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", chunk(b'{"a"')),
        (b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n", b'{"a"'),
    ],
    ids=["length", "chunked", "close"],
)
async def test_half_an_answer_is_a_502(plane, parts):
    async with Engine(writes(*parts, close=True)) as engine:
        model = await plane.serve(engine.port)

        got = await plane.ask(chat(model))

    assert got.status == 502
    assert got.error["code"] == "unavailable"


async def test_an_answer_in_pieces_and_in_any_framing_is_the_same_bytes(plane):
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
    pieces = [ANSWER[at : at + 7] for at in range(0, len(ANSWER), 7)]
    for parts, close in (
        ((head + b"content-length: %d\r\n\r\n" % len(ANSWER), *pieces), False),
        ((head + b"transfer-encoding: chunked\r\n\r\n", *map(chunk, pieces), b"0\r\n\r\n"), False),
        ((head + b"\r\n", *pieces), True),
        ((b"HTTP/1.1 100 Continue\r\n\r\n" + head + b"content-length: %d\r\n\r\n" % len(ANSWER), ANSWER), False),
    ):
        async with Engine(writes(*parts, close=close)) as engine:
            model = await plane.serve(engine.port)

            got = await plane.ask(chat(model))

        assert (got.status, got.raw) == (200, ANSWER)


async def test_a_second_answer_that_nobody_asked_for_reaches_nobody(plane):
    evil = plain(b'{"other":1}', headers="x-evil: 1\r\n")
    async with Engine(writes(plain(ANSWER) + evil)) as engine:
        model = await plane.serve(engine.port)

        replies = [await plane.ask(chat(model)) for _ in range(3)]

    assert [(reply.raw, reply.header("x-evil")) for reply in replies] == [(ANSWER, "")] * 3


async def test_a_silent_engine_is_given_up_and_not_asked_twice(plane):
    async def silent(_, seen, writer):
        if seen.body["stream"]:
            writer.write(STREAM_HEAD + chunk(delta("a")))
        await asyncio.sleep(PATIENCE)

    port = free_port()
    limits = {"GPUBUS_FIRST_BYTE_SECONDS": "1", "GPUBUS_IDLE_SECONDS": "1"}
    impatient = plane.worker("gateway-worker-impatient", GPUBUS_PORT=str(port), **limits)
    try:
        impatient.start().ready()
        async with Engine(silent) as one, Engine(silent) as two:
            model = await plane.serve(one.port, two.port)
            await eventually(lambda: lists(plane, model, port), PATIENCE)

            whole = await plane.ask(chat(model, stream=False), port=port)
            stream = await plane.ask(chat(model, stream=True), port=port)
            await eventually(lambda: one.open + two.open == 0, PATIENCE / 2)
    finally:
        impatient.end()

    assert (whole.status, stream.status) == (504, 200)
    assert len(one.seen) + len(two.seen) == 2
    for error in (whole.error, json.loads(stream.frames[-1])["error"]):
        assert "no byte for 1 s" in error["message"]


async def lists(plane, model, port):
    """Whether the worker on another port knows a model, too."""
    async with plane.wire(port) as wire:
        key = f"authorization: Bearer {ADMIN_TOKEN}"
        wire.send(f"GET /v1/models/{model} HTTP/1.1\r\nhost: x\r\n{key}\r\n\r\n".encode())
        return (await wire.reply()).status == 200


async def test_a_stranger_on_the_replicas_port_is_not_believed(plane):
    async def stranger(_, seen, writer):
        writer.write(plain(b'{"model":"another"}', headers="x-gpubus-replica: somebody-else\r\n"))

    async with Engine(stranger) as engine:
        model = await plane.serve(engine.port, token="the-right-one")

        got = await plane.ask(chat(model))

    assert got.status == 503
    assert engine.seen[0].header("x-gpubus-replica") == "the-right-one"


# Slow and leaving clients.


async def test_a_client_that_leaves_frees_the_engine(plane):
    for stream, parts in ((True, (STREAM_HEAD, chunk(delta("a")))), (True, ()), (False, ())):

        async def endless(_, seen, writer, parts=parts):
            for part in parts:
                writer.write(part)
            await asyncio.sleep(PATIENCE)

        async with Engine(endless) as engine:
            model = await plane.serve(engine.port)
            async with plane.wire() as wire:
                wire.send(post(chat(model, stream=stream)))
                if parts:
                    await wire.until(b"\n\n")
                await eventually(lambda engine=engine: engine.open == 1, PATIENCE)

            await eventually(lambda engine=engine: engine.open == 0, PATIENCE / 2)


async def test_a_slow_reader_holds_the_engine_back_and_gets_everything(plane):
    # More than all socket buffers on the way can hold.
    count, filler = 1_000, "x" * 50_000
    sent = 0

    async def flood(_, seen, writer):
        nonlocal sent
        writer.write(STREAM_HEAD)
        for _ in range(count):
            writer.write(chunk(delta(filler)))
            await writer.drain()
            sent += 1
        writer.write(chunk(END_FRAME) + b"0\r\n\r\n")

    async with Engine(flood) as engine:
        model = await plane.serve(engine.port)
        link = socket.create_connection(("127.0.0.1", plane.port))
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        reader, writer = await asyncio.open_connection(sock=link, limit=1 << 16)
        wire = Wire(reader, writer)
        try:
            wire.send(post(chat(model, stream=True)))
            head = await wire.head()
            await eventually(lambda: sent > 0, PATIENCE)
            still = -1
            while still != sent:
                still = sent
                await asyncio.sleep(0.3)
            held = sent
            got = await wire.rest(head)
        finally:
            writer.close()

    assert held < count
    assert got.whole
    assert got.raw == delta(filler) * count + END_FRAME


async def test_an_engine_that_answers_before_it_read_the_body_is_heard(plane):
    async def hasty(_, seen, writer):
        writer.write(plain(b'{"error":{"message":"no"}}', "413 Too Large"))

    async with Engine(hasty) as engine:
        model = await plane.serve(engine.port)

        got = await plane.ask(chat(model, pad="x" * 900_000))

    assert got.status == 413


# Requests side by side.


async def test_requests_go_to_the_least_busy_replica(plane):
    free = asyncio.Event()

    async def held(engine, seen, writer):
        await free.wait()
        await answer_chat(engine, seen, writer)

    async with Engine(held) as one, Engine(held) as two, Engine(held) as three:
        model = await plane.serve(one.port, two.port, three.port)
        running = [asyncio.ensure_future(plane.ask(chat(model))) for _ in range(12)]
        await eventually(lambda: len(one.seen) + len(two.seen) + len(three.seen) == 12, PATIENCE)
        spread = [len(engine.seen) for engine in (one, two, three)]
        free.set()
        replies = await asyncio.gather(*running)

    assert spread == [4, 4, 4]
    assert {reply.status for reply in replies} == {200}


async def test_a_replica_that_is_stuck_gets_no_more_than_the_others_have(plane):
    free = asyncio.Event()

    async def stuck(engine, seen, writer):
        await free.wait()
        await answer_chat(engine, seen, writer)

    async with Engine(stuck) as slow, Engine() as quick:
        model = await plane.serve(slow.port, quick.port)
        running = []
        while not slow.seen:
            running.append(asyncio.ensure_future(plane.ask(chat(model))))
            await asyncio.sleep(0.01)
        statuses = {(await plane.ask(chat(model))).status for _ in range(10)}
        kept = len(slow.seen)
        free.set()
        await asyncio.gather(*running)

    assert statuses == {200}
    assert kept == 1


async def test_many_streams_at_once_do_not_mix(plane):
    async def echo(_, seen, writer):
        text = seen.body["messages"][0]["content"]
        writer.write(STREAM_HEAD)
        for _ in range(20):
            writer.write(chunk(delta(text)))
            await writer.drain()
            await asyncio.sleep(0)
        writer.write(chunk(USAGE_FRAME) + chunk(END_FRAME) + b"0\r\n\r\n")

    async with Engine(echo) as engine:
        model = await plane.serve(engine.port)
        asked = [chat(model, stream=True, messages=[{"role": "user", "content": f"<{n}>"}]) for n in range(60)]
        replies = await asyncio.gather(*(plane.ask(body) for body in asked))

    for number, reply in enumerate(replies):
        texts = [json.loads(data)["choices"][0]["delta"]["content"] for data in reply.frames[:-1]]
        assert texts == [f"<{number}>"] * 20
        assert json.dumps(USAGE) not in reply.raw.decode()
