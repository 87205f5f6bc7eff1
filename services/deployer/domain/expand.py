"""`$(VAR)` in commands and variables, filled in as Kubernetes does.

Pure, standard library only. Read next: ../agent/launch.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

_REFERENCE = re.compile(r"\$(\$|\((?P<name>[A-Za-z_][A-Za-z0-9_.-]*)\))")
_MENTION = re.compile(rf"{_REFERENCE.pattern}|\$\{{?(?P<shell>[A-Za-z_][A-Za-z0-9_]*)")


def expand(text: str, values: Mapping[str, str]) -> str:
    """`$(NAME)` becomes the value, `$$` a dollar; an unknown name stays as it is."""

    def filled(match: re.Match[str]) -> str:
        name = match["name"]
        if name is None:
            return "$"
        return values.get(name, match[0])

    return _REFERENCE.sub(filled, text)


def mentions(texts: Iterable[str], name: str) -> bool:
    """Whether some text refers to a variable: as `$(NAME)`, or as a shell does, `$NAME` and `${NAME}`."""
    return any((match["name"] or match["shell"]) == name for text in texts for match in _MENTION.finditer(text))


def environment(own: Mapping[str, str], given: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The platform's variables and the user's, whose values may refer to those and to earlier ones of their own."""
    values = dict(own)
    for name, value in given:
        values[name] = expand(value, values)
    return {**values, **own}
