"""What a request must look like, and what is changed in it: as little as possible."""

import json

import pytest

from services.gateway.domain.openai import INFERENCE, BadRequest, check, decode, rewritten

CHAT = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}]}
PATH = "/v1/chat/completions"


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"\xff{}", "not JSON"),
        (b'{"model": "tiny",}', "line 1"),
        (b"[1]", "must be a JSON object"),
        (b"null", "must be a JSON object"),
        (b'"tiny"', "must be a JSON object"),
        (b"[" * 100_000, "not JSON"),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "not JSON"),
        (b'{"temperature": 1e999}', "number"),
    ],
)
def test_what_is_no_json_object_is_refused_in_words(raw, said):
    with pytest.raises(BadRequest) as caught:
        decode(raw)

    assert said in caught.value.message


@pytest.mark.parametrize(
    "raw",
    [
        b'{"model":"tiny","model":"other"}',
        b'{"model":"tiny","mod\\u0065l":"other"}',
        b'{"\\u006dodel":"tiny","mod\\u0065L":1,"\\u006Dodel":"other"}',
        b'{"model":"tiny","model":' + b"1" * 19 + b"}",
        b'{"model":"tiny","x":{"model":1},"model":"other"}',
    ],
    ids=["plain", "escaped", "both-escaped", "number", "nested-between"],
)
def test_a_model_given_twice_is_refused(raw):
    with pytest.raises(BadRequest) as caught:
        decode(raw)

    assert (caught.value.message, caught.value.param) == ("model is given twice", "model")


@pytest.mark.parametrize(
    "raw",
    [
        b'{"model":"tiny","metadata":{"model":"x"}}',
        b'{"model":"tiny","messages":[{"role":"user","content":"\\"model\\": 1, \\"model\\": 2"}]}',
        b'{"model":"tiny","x":"\\u006dodel"}',
    ],
)
def test_model_elsewhere_is_not_a_second_one(raw):
    assert decode(raw)["model"] == "tiny"


def said(make):
    """What comes of it, or the words of the refusal."""
    try:
        return make()
    except BadRequest as refusal:
        return refusal.message


def test_deep_nesting_with_two_models_is_taken_or_refused_in_words():
    """How deep json reads depends on the version of Python."""
    deep = b'{"model":"tiny","x":' + b"[" * 1010 + b'{"model":1}' + b"]" * 1010 + b"}"

    assert said(lambda: decode(deep)["model"]) in {"tiny", "the body is nested too deeply"}


def test_deep_nesting_in_a_body_that_is_changed_is_taken_or_refused_in_words():
    deep = b'{"model":"tiny","x":' + b"[" * 1010 + b"]" * 1010 + b"}"

    told = said(lambda: rewritten(deep, "other", ask_usage=True))
    assert told == "the body is nested too deeply" or deep[20:-1] in told


@pytest.mark.parametrize("wrong", [{}, {"model": ""}, {"model": None}, {"model": 5}, {"model": ["tiny"]}])
def test_a_missing_model_is_named(wrong):
    body = {**CHAT, **wrong}
    if not wrong:
        del body["model"]

    with pytest.raises(BadRequest) as caught:
        check(PATH, body)

    assert caught.value.param == "model"
    assert "model" in caught.value.message


@pytest.mark.parametrize(
    ("path", "change", "param"),
    [
        (PATH, {"messages": None}, "messages"),
        (PATH, {"messages": []}, "messages"),
        (PATH, {"messages": "hi"}, "messages"),
        (PATH, {"messages": ["hi"]}, "messages"),
        (PATH, {"messages": [{"content": "hi"}]}, "messages"),
        (PATH, {"messages": [{"role": 1, "content": "hi"}]}, "messages"),
        (PATH, {"max_tokens": 0}, "max_tokens"),
        (PATH, {"max_tokens": -1}, "max_tokens"),
        (PATH, {"max_tokens": 1.5}, "max_tokens"),
        (PATH, {"max_tokens": "7"}, "max_tokens"),
        (PATH, {"max_tokens": True}, "max_tokens"),
        (PATH, {"max_completion_tokens": 0}, "max_completion_tokens"),
        (PATH, {"n": 0}, "n"),
        (PATH, {"stream": "yes"}, "stream"),
        (PATH, {"stream": 1}, "stream"),
        (PATH, {"stream_options": {"include_usage": True}}, "stream_options"),
        (PATH, {"stream": True, "stream_options": []}, "stream_options"),
        (PATH, {"stream": True, "stream_options": {"include_usage": "yes"}}, "stream_options"),
        (PATH, {"stop": ["a", "b", "c", "d", "e"]}, "stop"),
        (PATH, {"stop": ""}, "stop"),
        (PATH, {"stop": [""]}, "stop"),
        (PATH, {"stop": [1]}, "stop"),
        ("/v1/completions", {"prompt": None}, "prompt"),
        ("/v1/completions", {"prompt": []}, "prompt"),
        ("/v1/completions", {"prompt": 5}, "prompt"),
        ("/v1/completions", {"prompt": [-1]}, "prompt"),
        ("/v1/completions", {"prompt": [[1, {}]]}, "prompt"),
        ("/v1/embeddings", {"input": None}, "input"),
        ("/v1/embeddings", {"input": ""}, "input"),
        ("/v1/embeddings", {"input": []}, "input"),
        ("/v1/embeddings", {"input": ["x"] * 2049}, "input"),
    ],
)
def test_a_wrong_parameter_is_named(path, change, param):
    with pytest.raises(BadRequest) as caught:
        check(path, {**CHAT, "prompt": "hi", "input": "hi", **change})

    assert caught.value.param == param
    assert param.removesuffix("s") in caught.value.message


@pytest.mark.parametrize(
    ("path", "change"),
    [
        (PATH, {}),
        (PATH, {"max_tokens": None, "n": None, "stop": None, "stream": None, "stream_options": None}),
        (PATH, {"stream": False, "stop": "\n"}),
        (PATH, {"stream": True, "stream_options": {"include_usage": None, "other": 1}}),
        (PATH, {"messages": [{"role": "tool", "tool_call_id": "x", "content": None}], "unheard_of": {"a": 1}}),
        ("/v1/completions", {"prompt": ""}),
        ("/v1/completions", {"prompt": ["a", "b"]}),
        ("/v1/completions", {"prompt": [[1, 2], [3]]}),
        ("/v1/embeddings", {"input": ["a", "b"]}),
        ("/v1/embeddings", {"input": [1, 2]}),
    ],
)
def test_a_good_request_passes(path, change):
    assert check(path, {**CHAT, "prompt": "hi", "input": "hi", **change}) == "tiny"


def test_every_path_is_checked():
    assert {PATH, "/v1/completions", "/v1/embeddings"} == INFERENCE


def test_rewriting_keeps_every_other_value_byte_for_byte():
    kept = '"seed":12345678901234567890123456789,"temperature":0.10,"x":-0.0,"y":1E5,"z":[ 1 , 2 ]'
    text = '"text":"é 🦉 \\u00e9 \\ud83e\\udd89 \\/ \\u0000 {\\"model\\":1}","nil":null'
    raw = ('{"unknown":{"b":1,"a":2},"model":"default/tiny",' + kept + "," + text + "}").encode()

    changed = rewritten(raw, "tiny", ask_usage=False)

    assert kept.encode() in changed
    assert text.encode() in changed
    assert json.loads(changed) == {**json.loads(raw), "model": "tiny"}
    assert list(json.loads(changed)) == list(json.loads(raw))


@pytest.mark.parametrize("name", ['with "quotes"', "back\\slash", "org/Model-7B", "模型", "a\u2028b"])
def test_any_name_is_written_as_json(name):
    assert json.loads(rewritten(b'{"model":"x"}', name, ask_usage=False)) == {"model": name}


@pytest.mark.parametrize(
    ("options", "after"),
    [
        ("", {"include_usage": True}),
        (',"stream_options":null', {"include_usage": True}),
        (',"stream_options":{}', {"include_usage": True}),
        (',"stream_options":{"include_usage":false,"other":1.10}', {"include_usage": True, "other": 1.1}),
        (',"stream_options":{"include_usage":null}', {"include_usage": True}),
    ],
)
def test_usage_is_asked_for_and_other_options_stay(options, after):
    raw = ('{"model":"tiny","stream":true' + options + ',"seed":12345678901234567890123}').encode()

    changed = rewritten(raw, "tiny", ask_usage=True)

    assert json.loads(changed)["stream_options"] == after
    assert b'"seed":12345678901234567890123' in changed


def test_a_model_key_written_with_escapes_is_replaced_not_doubled():
    changed = rewritten(b'{"mod\\u0065l":"x","a":1}', "tiny", ask_usage=False)

    assert json.loads(changed, object_pairs_hook=list) == [("model", "tiny"), ("a", 1)]
