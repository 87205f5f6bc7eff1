"""Terminal manners: colours and symbols only where a person looks, plain lines elsewhere.

Must not depend on rich: short commands stay quick. Read next: gpubus/show_up.py.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from gpubus.environment import variable

_CODES = {"bold": "1", "dim": "2", "green": "32", "yellow": "33", "red": "31", "cyan": "36"}


def is_terminal() -> bool:
    """Whether standard output is a person's screen that takes colours."""
    return sys.stdout.isatty() and not variable("NO_COLOR") and variable("TERM") != "dumb"


def paint(text: str, *styles: str) -> str:
    """Coloured on a terminal, as it is elsewhere."""
    if not is_terminal() or not styles:
        return text
    return f"\033[{';'.join(_CODES[style] for style in styles)}m{text}\033[0m"


def tick() -> str:
    """The mark of something done."""
    return paint("✓", "green") if is_terminal() else "*"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Left-aligned columns three spaces apart, as kubectl prints them."""
    widths = [max(len(str(row[column])) for row in (head, *rows)) for column in range(len(head))]
    lines = [
        "   ".join(str(cell).ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (head, *rows)
    ]
    return "\n".join(lines)


def age(seconds: float) -> str:
    """`5s`, `3m12s`, `4h2m`, `3d4h`: the two leading units."""
    parts: list[str] = []
    left = int(max(0, seconds))
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, left = divmod(left, size)
        if count or (parts and len(parts) < 2) or unit == "s":
            parts.append(f"{count}{unit}")
    return "".join(part for part in parts[:2] if not part.startswith("0") or len(parts) == 1)
