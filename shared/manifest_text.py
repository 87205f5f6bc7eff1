"""Text of manifests, strict: YAML or JSON becomes exactly what the writer meant, or an error with line and key.

Owns the reading rules of the gateway, the command line and the bus command: YAML 1.2 core schema, no duplicate keys, no
custom tags, no bombs. A plain value that YAML 1.1 readers take for something else (`on`, `0012`, `1:30`, `2026-01-01`,
`1_000`) is refused with "put it in quotes", so no reader changes it silently. Must not know any kind.
Read next: services/gateway/domain/decoding.py, which checks the result against its kind.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from shared.errors import Cause, InvalidArgument, Malformed, TooLarge

MAX_BYTES = 3 * 1024 * 1024
"""Contract: bodies of resources."""
MAX_DEPTH = 100
"""Far below what orjson writes (254), so whatever is read here can be sent on."""
MAX_NODES = 200_000
"""Values in one text, each alias counted in full: more than any honest manifest of MAX_BYTES."""

_INT64 = 2**63
_INT = re.compile(r"[-+]?(0|[1-9][0-9]*)|0o[0-7]+|0x[0-9a-fA-F]+", re.ASCII)
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|(0|[1-9][0-9]*)(\.[0-9]*)?)([eE][-+]?[0-9]+)?", re.ASCII)
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)", re.ASCII)
_CONSTANTS: Mapping[str, bool | None] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
}  # fmt: skip
# What a YAML 1.1 reader (PyYAML, older kubectl) takes for a boolean, octal, base 60, spaced or binary number, a date, or `=`.
_AMBIGUOUS = re.compile(
    r"yes|Yes|YES|no|No|NO|on|On|ON|off|Off|OFF|="
    r"|[-+]?0[0-9_]+(\.[0-9_]*)?([eE][-+]?[0-9]+)?|[-+]?[0-9][0-9_]*_[0-9_]*(\.[0-9_]*)?|[-+]?0[bx][0-9a-fA-F_]*_?[0-9a-fA-F_]*"
    r"|[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([Tt ].*)?",
    re.ASCII,
)
_STR_TAGS = ("!", "tag:yaml.org,2002:str")
_CONTAINER_TAGS = {"!", "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"}
_SIMPLE_KEY = re.compile(r"[A-Za-z0-9_./-]{1,253}", re.ASCII)


@dataclass(frozen=True, slots=True)
class ManifestDocument:
    """One document of a text."""

    body: dict[str, Any]
    line: int
    """Where it begins, from 1."""


def load_documents(text: bytes, limit: int = MAX_BYTES) -> list[ManifestDocument]:
    """Every document of a YAML or JSON text; empty ones are left out.

    Raises:
        Malformed: not YAML, not JSON, or a document that is no mapping; nothing of the text is to be used.
        InvalidArgument: an integer over 64 bits. TooLarge: over `limit` bytes.
    """
    decoded = _decoded(text, limit)
    if decoded.lstrip()[:1] == "{":
        try:
            return [ManifestDocument(_mapping(_json(decoded), 1), 1)]
        except _NotJson:
            pass  # a flow mapping, or several documents
    return [ManifestDocument(_mapping(body, line), line) for body, line in _yaml(decoded) if body is not None]


def load_one(text: bytes, limit: int = MAX_BYTES) -> dict[str, Any]:
    """The one document of a YAML or JSON text.

    Raises:
        Malformed, InvalidArgument, TooLarge: as load_documents; also when there is none or more than one.
    """
    found = load_documents(text, limit)
    if len(found) != 1:
        raise Malformed(f"one document is needed; found {len(found)}")
    return found[0].body


def load_json(text: bytes, limit: int = MAX_BYTES) -> Any:
    """Strict JSON: no duplicate keys, NaN, lone surrogates, NUL, or nesting over MAX_DEPTH.

    Raises:
        Malformed: not JSON. InvalidArgument: an integer over 64 bits. TooLarge: over `limit` bytes.
    """
    return _json(_decoded(text, limit))


class _NotJson(Malformed):
    """The syntax is not JSON's; the text may still be YAML."""


def _decoded(text: bytes, limit: int) -> str:
    if len(text) > limit:
        raise TooLarge(f"{len(text)} bytes; at most {limit} are taken")
    try:
        decoded = text.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = text[: error.start].count(b"\n") + 1
        raise _at(line, "", "the text is not valid UTF-8") from None
    if "\0" in decoded:
        raise _at(decoded[: decoded.index("\0")].count("\n") + 1, "", "the text contains a NUL character")
    return decoded


def _mapping(body: Any, line: int) -> dict[str, Any]:
    if not isinstance(body, dict):
        raise _at(line, "", "a manifest is a mapping with apiVersion, kind and metadata")
    return body


# JSON


def _json(text: str) -> Any:
    try:
        body = json.loads(
            text,
            object_pairs_hook=lambda pairs: _unique(pairs, text),
            parse_int=_json_int,
            parse_float=_json_float,
            parse_constant=_json_constant,
        )
    except json.JSONDecodeError as error:
        raise _NotJson(f"line {error.lineno}: not JSON: {error.msg}", (), {"line": error.lineno}) from None
    except RecursionError:
        raise Malformed(f"nested deeper than {MAX_DEPTH}") from None
    _check_tree(body)
    return body


def _unique(pairs: list[tuple[str, Any]], text: str) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        key = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        _raise_duplicate(key, text)
    return found


def _raise_duplicate(key: str, text: str) -> NoReturn:
    try:
        # The YAML reader knows lines, and most JSON is YAML.
        for _ in _yaml(text):
            pass
    except Malformed as error:
        if error.fields.get("duplicate"):
            raise
    raise Malformed(f"key {_shown(key)} appears twice", (Cause(_shown(key), "appears twice"),), {"duplicate": True})


def _json_int(digits: str) -> int:
    # Checked before int(): converting megabytes of digits takes minutes.
    if len(digits) > 20 or not -_INT64 <= int(digits) < _INT64:
        raise InvalidArgument("a number is over 64 bits (9223372036854775807)")
    return int(digits)


def _json_float(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise Malformed("a number is too large to be read")
    return value


def _json_constant(name: str) -> NoReturn:
    raise Malformed(f"{name} is not a JSON value")


def _check_tree(body: Any) -> None:
    level, depth = [body], 0
    while level:
        depth += 1
        if depth > MAX_DEPTH:
            raise Malformed(f"nested deeper than {MAX_DEPTH}")
        below: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                for key in value:
                    _check_text(key)
                below.extend(value.values())
            elif isinstance(value, list):
                below.extend(value)
            elif isinstance(value, str):
                _check_text(value)
        level = below


def _check_text(text: str) -> None:
    half = not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text)
    if half or "\0" in text:
        raise Malformed("a text contains NUL or half of a surrogate pair")


# YAML


@dataclass(slots=True)
class _Frame:
    """A mapping or list that is being read."""

    value: dict[str, Any] | list[Any]
    line: int
    anchor: str | None
    before: int
    """Nodes counted before this one."""
    key: str | None = None
    """The key whose value comes next."""
    depth: int = 1
    """Levels below and including this one."""


@dataclass(slots=True)
class _Anchored:
    """A finished value that an alias may repeat."""

    value: Any
    nodes: int
    depth: int


@dataclass(slots=True)
class _Reader:
    """One document at a time, from the parser's events: no recursion, every node counted."""

    stack: list[_Frame] = field(default_factory=list)
    anchors: dict[str, _Anchored | None] = field(default_factory=dict)
    root: Any = None
    nodes: int = 0

    def scalar(self, event: Any) -> None:
        """A text, number, boolean or null."""
        line = event.start_mark.line + 1
        self._count(1, line)
        if self._wants_key():
            self._take_key(event.value, line)
            return
        value = self._scalar_value(event, line)
        if event.anchor:
            self.anchors[event.anchor] = _Anchored(value, 1, 1)
        self._place(value, 1)

    def open(self, event: Any, value: dict[str, Any] | list[Any]) -> None:
        """A mapping or list begins."""
        line = event.start_mark.line + 1
        self._count(1, line)
        if self._wants_key():
            raise self._error(line, "a key must be text")
        if event.tag and event.tag not in _CONTAINER_TAGS:
            raise self._error(line, "tags are not taken")
        if len(self.stack) >= MAX_DEPTH:
            raise self._error(line, f"nested deeper than {MAX_DEPTH}")
        if event.anchor:
            self.anchors[event.anchor] = None
        self.stack.append(_Frame(value, line, event.anchor, self.nodes))

    def close(self) -> None:
        """A mapping or list ends."""
        frame = self.stack.pop()
        if frame.anchor:
            self.anchors[frame.anchor] = _Anchored(frame.value, self.nodes - frame.before + 1, frame.depth)
        self._place(frame.value, frame.depth)

    def alias(self, event: Any) -> None:
        """A finished value once more, as a copy."""
        line = event.start_mark.line + 1
        if self._wants_key():
            raise self._error(line, "a key must be text")
        found = self.anchors.get(event.anchor)
        if found is None:
            raise self._error(line, "an alias to a value that is not finished, or not there")
        self._count(found.nodes, line)
        if len(self.stack) + found.depth > MAX_DEPTH:
            raise self._error(line, f"nested deeper than {MAX_DEPTH}")
        self._place(_copied(found.value), found.depth)

    def _wants_key(self) -> bool:
        return bool(self.stack) and isinstance(self.stack[-1].value, dict) and self.stack[-1].key is None

    def _take_key(self, key: str, line: int) -> None:
        frame = self.stack[-1]
        if key == "<<":
            raise self._error(line, "merge keys (<<) are not taken; write the fields out")
        if key in frame.value:
            raise _at(line, self._path(key), f"key {_shown(key)} appears twice", duplicate=True)
        _check_text(key)
        frame.key = key

    def _place(self, value: Any, depth: int) -> None:
        if not self.stack:
            self.root = value
            return
        frame = self.stack[-1]
        frame.depth = max(frame.depth, depth + 1)
        if isinstance(frame.value, list):
            frame.value.append(value)
        else:
            assert frame.key is not None, "a mapping's value follows its key"
            frame.value[frame.key], frame.key = value, None

    def _scalar_value(self, event: Any, line: int) -> Any:
        plain, text = event.implicit[0] and event.style in {None, ""}, event.value
        if event.tag and event.tag not in _STR_TAGS:
            raise self._error(line, "tags are not taken")
        if event.tag or not plain:
            _check_text(text)
            return text
        if text in _CONSTANTS:
            return _CONSTANTS[text]
        if _INT.fullmatch(text):
            return self._integer(text, line)
        if _NOT_FINITE.fullmatch(text):
            raise self._error(line, "infinity and NaN are not values")
        if _FLOAT.fullmatch(text):
            return self._float(text, line)
        if _AMBIGUOUS.fullmatch(text):
            raise self._error(
                line, "is read as a boolean, number or date by some and as text by others; put it in quotes"
            )
        return text

    def _integer(self, text: str, line: int) -> int:
        number = int(text, 0) if len(text) <= 20 else _INT64
        if not -_INT64 <= number < _INT64:
            path = self._path()
            cause = Cause(path, "is over 64 bits (9223372036854775807)")
            raise InvalidArgument(f"line {line}: {path or 'a number'} {cause.message}", (cause,), {"line": line})
        return number

    def _float(self, text: str, line: int) -> float:
        value = float(text)
        if math.isinf(value):
            raise self._error(line, "is too large to be read")
        return value

    def _count(self, nodes: int, line: int) -> None:
        self.nodes += nodes
        if self.nodes > MAX_NODES:
            raise _at(line, "", f"more than {MAX_NODES} values, aliases counted in full")

    def _error(self, line: int, sentence: str) -> Malformed:
        return _at(line, self._path(), sentence)

    def _path(self, last: str = "") -> str:
        parts: list[str] = []
        for frame in self.stack:
            if isinstance(frame.value, list):
                parts.append(f"[{len(frame.value)}]")
            elif frame.key is not None:
                parts.append(f".{_shown(frame.key)}")
        return "".join((*parts, f".{_shown(last)}" if last else "")).removeprefix(".")


def _yaml(text: str) -> Iterator[tuple[Any, int]]:
    """(value, line) of each document."""
    import yaml

    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    reader = _Reader()
    line = 1
    try:
        events: Iterator[Any] = yaml.parse(text, Loader=loader)
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent):
                # Nodes are counted over the whole text: many small documents are a bomb too.
                reader = _Reader(nodes=reader.nodes)
                line = event.end_mark.line + 1 if event.end_mark else line
            elif isinstance(event, yaml.DocumentEndEvent):
                yield reader.root, line
            else:
                _feed(reader, event, yaml)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = mark.line + 1 if mark is not None else line
        raise _at(where, "", f"not YAML: {error.problem or 'unreadable'}") from None
    except yaml.YAMLError:
        raise _at(line, "", "not YAML: a character that may not be there") from None


def _feed(reader: _Reader, event: Any, yaml: Any) -> None:
    if isinstance(event, yaml.ScalarEvent):
        reader.scalar(event)
    elif isinstance(event, yaml.AliasEvent):
        reader.alias(event)
    elif isinstance(event, yaml.MappingStartEvent):
        reader.open(event, {})
    elif isinstance(event, yaml.SequenceStartEvent):
        reader.open(event, [])
    elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
        reader.close()


def _copied(value: Any) -> Any:
    """A deep copy: two places in a manifest must not share one object. Depth is bounded by MAX_DEPTH."""
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_copied(item) for item in value]
    return value


def _at(line: int, path: str, sentence: str, *, duplicate: bool = False) -> Malformed:
    causes = (Cause(path, sentence),) if path else ()
    subject = f"{path} " if path and not duplicate and sentence.startswith("is ") else f"{path}: " if path else ""
    fields = {"line": line, **({"key": path} if path else {}), **({"duplicate": True} if duplicate else {})}
    return Malformed(f"line {line}: {subject}{sentence}", causes, fields)


def _shown(key: str) -> str:
    """A key for a message; odd ones may be secrets in the wrong place and are not echoed."""
    return key if _SIMPLE_KEY.fullmatch(key) else "(unprintable)"
