"""Usage out of answers and streams, however the network cuts them."""

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.gateway.domain.streaming import StreamMeter, Usage, error_frame, read_usage

USAGE = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
END = b"data: [DONE]\n\n"


def data(body, border=b"\n\n"):
    return b"data: " + json.dumps(body, ensure_ascii=False).encode() + border


def content(text, **more):
    return {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}], **more}


ONLY_USAGE = {"choices": [], "usage": USAGE}
ANSWER = [data(content("naïve ")), data(content("日本語 🦉")), data(content("\ndata: [DONE]\n\n"))]


def run(stream, cuts, *, hide):
    meter = StreamMeter(hide=hide)
    edges = [0, *sorted(cuts), len(stream)]
    pieces = [meter.feed(stream[a:b]) for a, b in itertools.pairwise(edges)]
    return b"".join(pieces) + meter.rest(), meter


@pytest.mark.parametrize("border", [b"\n\n", b"\r\n\r\n", b"\r\r"], ids=["lf", "crlf", "cr"])
@pytest.mark.parametrize("hide", [True, False])
def test_every_single_cut_gives_the_same_frames_and_usage(border, hide):
    frames = [data(content("é🦉"), border), data(content("x", usage=None), border)]
    end = b"data: [DONE]" + border
    whole = b"".join((*frames, data(ONLY_USAGE, border), end))
    wanted = b"".join((*frames, end)) if hide else whole

    for cut in range(len(whole) + 1):
        got, meter = run(whole, [cut], hide=hide)
        assert got == wanted, cut
        assert meter.usage == Usage(11, 0, 7)
        assert meter.frames == 3
        assert meter.ended


@given(cuts=st.lists(st.integers(0, 400), max_size=12), hide=st.booleans())
def test_any_cuts_give_the_same_frames(cuts, hide):
    whole = b"".join((*ANSWER, data(ONLY_USAGE), END))

    got, meter = run(whole, [min(cut, len(whole)) for cut in cuts], hide=hide)

    assert got == (b"".join((*ANSWER, END)) if hide else whole)
    assert meter.usage == Usage(11, 0, 7)


def test_one_byte_at_a_time_never_lets_the_hidden_frame_out():
    whole = b"".join((*ANSWER, data(ONLY_USAGE), END))

    got, meter = run(whole, range(1, len(whole)), hide=True)

    assert got == b"".join((*ANSWER, END))
    assert meter.usage == Usage(11, 0, 7)


@pytest.mark.parametrize(
    "frame",
    [
        b": keep-alive\n" + data(ONLY_USAGE),
        b"event: message\nid: 7\n" + data(ONLY_USAGE),
        b'data:{"choices":[],\ndata:"usage":{"prompt_tokens":11,"completion_tokens":7}}\n\n',
        b'data: {"choices":[],"usage" : { "prompt_tokens":11,"completion_tokens":7}}\n\n',
        b'data: {"usage":{"prompt_tokens":11,"completion_tokens":7}}\n\n',
    ],
    ids=["comment", "fields", "two-data-lines", "blanks", "no-choices-at-all"],
)
def test_usage_frame_is_found_and_hidden_in_any_legal_form(frame):
    got, meter = run(ANSWER[0] + frame + END, [], hide=True)

    assert got == ANSWER[0] + END
    assert meter.usage == Usage(11, 0, 7)


def test_usage_without_prompt_tokens_is_hidden_too():
    got, meter = run(data({"choices": [], "usage": {"completion_tokens": 7}}) + END, [], hide=True)

    assert got == END
    assert meter.usage == Usage(0, 0, 7)


def test_usage_that_rides_on_content_stays_and_counts():
    last = data(content("!", usage=USAGE))

    got, meter = run(last + END, [], hide=True)

    assert got == last + END
    assert meter.usage == Usage(11, 0, 7)


def test_mixed_line_ends_in_one_chunk_do_not_hide_the_wrong_frame():
    stream = data(content("a")) + b": ping\r\n\r\n" + data(ONLY_USAGE) + END

    got, meter = run(stream, [], hide=True)

    assert got == data(content("a")) + b": ping\r\n\r\n" + END
    assert meter.usage == Usage(11, 0, 7)


def test_a_text_that_looks_like_usage_is_text():
    frame = data(content('{"choices":[],"usage":{"prompt_tokens":1}}'))

    got, meter = run(frame + END, [], hide=True)

    assert got == frame + END
    assert meter.usage is None


def test_comments_and_the_end_count_for_no_token():
    stream = b": ping\n\n" * 5 + b"".join(ANSWER) + b": ping\n\n" + END

    _, meter = run(stream, [], hide=True)

    assert meter.output_seen == 3


def test_a_stream_without_end_marker_has_not_ended():
    _, meter = run(b"".join(ANSWER), [], hide=True)

    assert not meter.ended


def test_content_that_says_done_does_not_end_it():
    _, meter = run(data(content("[DONE]")), [], hide=True)

    assert not meter.ended


def test_what_is_no_frame_is_not_held_back_for_ever():
    meter = StreamMeter(hide=True)
    blob = b"x" * (2 << 20)

    assert meter.feed(blob) == blob
    assert meter.rest() == b""


def test_half_a_frame_at_the_end_is_passed_on_as_it_is():
    got, _ = run(ANSWER[0] + b'data: {"cho', [], hide=True)

    assert got == ANSWER[0] + b'data: {"cho'


def test_error_frame_is_one_the_clients_read():
    frame = error_frame("tiny broke off: \n\n gone", "server_error", "unavailable")

    assert frame.startswith(b"data: ")
    assert frame.count(b"\n\n") == 1
    assert json.loads(frame[6:]) == {
        "error": {
            "message": "tiny broke off: \n\n gone",
            "type": "server_error",
            "param": None,
            "code": "unavailable",
        }
    }


@pytest.mark.parametrize(
    ("body", "usage"),
    [
        ({"usage": USAGE}, Usage(11, 0, 7)),
        ({"usage": {**USAGE, "prompt_tokens_details": {"cached_tokens": 4}}}, Usage(11, 4, 7)),
        ({"usage": {**USAGE, "prompt_tokens_details": None}}, Usage(11, 0, 7)),
        ({"usage": {"prompt_tokens": 12, "total_tokens": 12}}, Usage(12, 0, 0)),
        ({"usage": {"total_tokens": 12}}, Usage(12, 0, 0)),
        ({"usage": {"prompt_tokens": -5, "completion_tokens": "7"}}, Usage(0, 0, 0)),
        ({"usage": {"prompt_tokens": True, "completion_tokens": 1.5}}, Usage(0, 0, 0)),
        ({"usage": None}, None),
        ({"usage": []}, None),
        ({}, None),
        ([], None),
        (None, None),
    ],
)
def test_usage_of_a_body(body, usage):
    assert read_usage(body) == usage
