"""Text of manifests: every way in which YAML and JSON mislead their writers is an error with line and key."""

import time

import pytest

from shared.errors import InvalidArgument, Malformed, TooLarge
from shared.manifest_text import MAX_NODES, load_documents, load_json, load_one


def body(text):
    return load_one(text.encode())


def refusal(text, limit=3 * 1024 * 1024):
    with pytest.raises((Malformed, InvalidArgument, TooLarge)) as caught:
        load_documents(text if isinstance(text, bytes) else text.encode(), limit)
    return caught.value


def test_plain_yaml_becomes_its_json():
    assert body("a: 1\nb: [1, 2.5, x, true, ~]\nc: {d: 'e'}\n") == {
        "a": 1,
        "b": [1, 2.5, "x", True, None],
        "c": {"d": "e"},
    }


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("y", "y"), ("n", "n"), ("1e3", 1000.0), ("0.30", 0.3), ("-5", -5), ("+5", 5), ("0x10", 16), ("0o17", 15), ("0", 0),
        ("1.2.3", "1.2.3"), ("8Gi", "8Gi"), ("100m", "100m"), ("TRUE", True), ("~", None), ("", None), ("null", None),
        ("'on'", "on"), ('"0012"', "0012"), ("!!str 12", "12"), ("on-call", "on-call"), ("1:3:x", "1:3:x"),
        ("http://x:80/y", "http://x:80/y"), ("sha256:0123", "sha256:0123"), ("2026-01", "2026-01"), ("9223372036854775807", 2**63 - 1),
    ],
)  # fmt: skip
def test_plain_value_means_what_yaml_1_2_says(text, value):
    assert body(f"a: {text}\n") == {"a": value}
    assert type(body(f"a: {text}\n")["a"]) is type(value)


@pytest.mark.parametrize(
    "text",
    ["on", "off", "yes", "No", "NO", "010", "0012", "-007", "1:30", "-1:30:00", "1_000", "1_0.5", "2026-01-01", "2026-1-1",
     "2026-01-01T00:00:00Z", "2026-01-01 10:00:00", "0b11", "0x1_0", "=", "00", "08.5"],
)  # fmt: skip
def test_value_that_readers_disagree_about_is_refused_with_line_and_key(text):
    error = refusal(f"a: 1\nspec:\n  - x: {text}\n")

    assert isinstance(error, Malformed)
    assert error.fields["line"] == 3
    assert "spec[0].x" in error.message
    assert "quotes" in error.message


def test_refused_value_is_not_echoed():
    assert "0123456" not in refusal("password: 0123456\n").message


@pytest.mark.parametrize("text", [".inf", "-.INF", ".nan", ".NaN", "1e999", "-1e999"])
def test_value_that_is_not_finite_is_refused(text):
    assert isinstance(refusal(f"a: {text}"), Malformed)


@pytest.mark.parametrize(
    ("text", "line", "key"),
    [
        ("a: 1\nspec:\n  x: 1\n  x: 2\n", 4, "spec.x"),
        ("a: 1\nlist:\n- b: 1\n- c: 1\n  d: 2\n  c: 3\n", 6, "list[1].c"),
        ('{"a": 1,\n "a": 2}', 2, "a"),
        ('{"a": {"b": 1,\n\n"b": 2}}', 3, "a.b"),
        ("{a: 1, a: 2}", 1, "a"),
    ],
)
def test_duplicate_key_is_refused_with_its_line(text, line, key):
    error = refusal(text)

    assert isinstance(error, Malformed)
    assert error.fields["line"] == line
    assert error.fields["key"] == key
    assert "appears twice" in error.message


def test_duplicate_key_in_json_that_is_no_yaml_is_refused_too():
    assert "appears twice" in refusal('{"a": "\\ud83d\\ude00", "a": 2}').message


@pytest.mark.parametrize(
    "text",
    ["!!python/object:os.system {}", "!custom x", "!!binary aGk=", "!!set {a}", "!!timestamp 2026-01-01", "!!int '3'"],
)
def test_tag_is_refused(text):
    assert isinstance(refusal(f"a: {text}"), Malformed)


def test_merge_key_is_refused():
    assert "merge keys" in refusal("base: &b {x: 1}\na:\n  <<: *b\n").message


def test_alias_repeats_a_value_as_a_copy():
    found = body("a: &x {b: [1]}\nc: *x\n")

    assert found == {"a": {"b": [1]}, "c": {"b": [1]}}
    assert found["a"] is not found["c"]
    assert found["a"]["b"] is not found["c"]["b"]


@pytest.mark.parametrize("text", ["a: &x [*x]", "a: &x {b: *x}", "a: *nowhere", "*x : 1"])
def test_alias_without_a_finished_value_is_refused(text):
    assert isinstance(refusal(text), Malformed)


def bomb():
    levels = [b"a0: &a0 x"]
    levels += [b"a%d: &a%d [%s]" % (n, n, b",".join([b"*a%d" % (n - 1)] * 9)) for n in range(1, 10)]
    return b"\n".join(levels)


@pytest.mark.parametrize(
    "text",
    [
        bomb(),
        b"[" * 100_000,
        b"- " * 100_000,
        b'{"a":' * 100_000,
        b'{"a":' + b"[" * 200 + b"]" * 200 + b"}",
        b"a: " + b"{b: " * 200 + b"}" * 200,
    ],
    ids=["aliases", "flow", "block", "json", "json-closed", "flow-closed"],
)
def test_bomb_is_refused_quickly(text):
    started = time.process_time()

    error = refusal(text)

    assert isinstance(error, Malformed)
    assert time.process_time() - started < 1, "CPU time of a refusal"


def test_deep_alias_counts_the_depth_of_its_value():
    nested = "[" * 60 + "]" * 60

    assert "nested" in refusal(f"a: &x {nested}\nb: " + "[" * 60 + "*x" + "]" * 60).message


def test_many_values_are_refused():
    assert "values" in refusal("a: [" + "1," * (MAX_NODES + 1) + "]").message


def test_large_text_is_refused_by_size():
    error = refusal(b"k" * 1001, limit=1000)

    assert isinstance(error, TooLarge)


@pytest.mark.parametrize("text", [b"a: \xff", b"a: \x00", b"\xff\xfea\x00", b'{"a": "\xed\xa0\x80"}'])
def test_bytes_that_are_not_text_are_refused(text):
    assert isinstance(refusal(text), Malformed)


def test_byte_order_mark_and_windows_line_ends_are_taken():
    assert load_one(b"\xef\xbb\xbfa: 1\r\nb:\r\n  - x\r\n") == {"a": 1, "b": ["x"]}
    assert load_one(b'\xef\xbb\xbf{"a": 1}\r\n') == {"a": 1}


def test_tab_indentation_is_refused_with_its_line():
    error = refusal("a:\n\tb: 1\n")

    assert error.fields["line"] == 2


@pytest.mark.parametrize(
    "text", ['"\\ud800"', '"\\udfff\\ud800"', '"a\\u0000b"', "NaN", "Infinity", "-Infinity", "1e999"]
)
def test_json_value_that_cannot_travel_is_refused(text):
    assert isinstance(refusal(f'{{"a": {text}}}'), Malformed)
    with pytest.raises(Malformed):
        load_json(f'{{"a": {text}}}'.encode())


def test_surrogate_pair_in_json_is_one_character():
    assert load_json(b'{"a": "\\ud83d\\ude00"}') == {"a": "\U0001f600"}


@pytest.mark.parametrize(
    "text",
    [
        "a: 99999999999999999999",
        "a: -9223372036854775809",
        "a: 0xffffffffffffffff",
        '{"a": 99999999999999999999}',
        "a: " + "9" * 100_000,
    ],
)
def test_integer_over_64_bits_is_an_invalid_value(text):
    assert isinstance(refusal(text), InvalidArgument)


def test_documents_keep_their_first_line():
    found = load_documents(b"---\n---\na: 1\n---\n# nothing\n---\nb: 2\n...\n")

    assert [(d.body, d.line) for d in found] == [({"a": 1}, 2), ({"b": 2}, 6)]


def test_one_broken_document_breaks_the_text():
    assert refusal("a: 1\n---\nb: [\n").fields["line"] == 4


@pytest.mark.parametrize("text", ["- 1", "hello", "12", "[1]", '"x"'])
def test_document_that_is_no_mapping_is_refused(text):
    assert isinstance(refusal(text), Malformed)


@pytest.mark.parametrize("text", ["", "---\n", "a: 1\n---\nb: 2\n"])
def test_one_document_is_needed_where_one_is_asked_for(text):
    with pytest.raises(Malformed, match="one document"):
        load_one(text.encode())


def test_keys_stay_text():
    assert body("1: x\non: y\n0012: z\n2026-01-01: d\n") == {"1": "x", "on": "y", "0012": "z", "2026-01-01": "d"}


@pytest.mark.parametrize("text", ["? [a]\n: b\n", "? {a: 1}\n: b\n"])
def test_key_that_is_no_text_is_refused(text):
    assert "key must be text" in refusal(text).message


def test_block_texts_are_kept():
    assert body("a: |\n  on\n  0012\nb: >-\n  x\n  y\n") == {"a": "on\n0012\n", "b": "x y"}
