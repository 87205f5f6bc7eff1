"""Engine arguments as users spell them: which flag an argument is, which values a flag is given, how wide a model is cut.

Pure. Read next: rules_deployment.py.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

_SHORTEST_ABBREVIATION = 5
"""`--mod` and longer may stand for `--model`; shorter ones are too many flags at once."""
_OWN_FLAGS = frozenset({"--tokenizer", "--kv-cache", "--hf"})
"""Engine flags of their own that are the beginning of an owned one."""
TENSOR = ("--tensor-parallel-size", "-tp", "--tp-size", "--tp")
PIPELINE = ("--pipeline-parallel-size", "-pp", "--pp-size", "--pp")
DATA = ("--data-parallel-size", "-dp", "--dp-size", "--dp")


def flag_of(argument: str) -> str:
    """The flag in its one spelling: no value, no underscores, no dotted part; empty when it is no flag."""
    if not argument.startswith("-"):
        return ""
    head = argument.split("=", 1)[0].split(None, 1)[0] if argument.strip() else ""
    return head.replace("_", "-").split(".", 1)[0]


def owned_by(flag: str, owned: Collection[str]) -> str:
    """The owned flag that `flag` is, or is an abbreviation of; empty when it is none."""
    if flag in owned:
        return flag
    if not flag.startswith("--") or len(flag) < _SHORTEST_ABBREVIATION or flag in _OWN_FLAGS:
        return ""
    return next((name for name in sorted(owned) if name.startswith(flag)), "")


@dataclass(frozen=True, slots=True)
class Given:
    """One use of a flag."""

    position: int
    flag: str
    value: str | None
    """None when nothing follows."""


def uses(arguments: Sequence[str], flags: Collection[str]) -> Iterator[Given]:
    """Every use of some flags, written `--flag value` or `--flag=value`."""
    for position, argument in enumerate(arguments):
        flag = flag_of(argument)
        if flag not in flags:
            continue
        if "=" in argument:
            yield Given(position, flag, argument.split("=", 1)[1])
        elif len(argument.split(None, 1)) > 1:
            yield Given(position, flag, argument.split(None, 1)[1])
        else:
            yield Given(position, flag, arguments[position + 1] if position + 1 < len(arguments) else None)


def degree(arguments: Sequence[str], flags: Collection[str]) -> int | Given:
    """A parallel degree, 1 when it is not set; the use that cannot be read, or contradicts an earlier one."""
    found = 0
    for given in uses(arguments, flags):
        text = given.value or ""
        if not (text.isascii() and text.isdigit() and int(text) > 0) or (found and int(text) != found):
            return given
        found = int(text)
    return found or 1
