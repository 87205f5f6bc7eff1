"""Quantities exactly as Kubernetes parses them, in integers; never floats.

Read next: shared/resources/base.py.
"""

from __future__ import annotations

import re
from decimal import Decimal
from fractions import Fraction

KI, MI, GI = 1024, 1024**2, 1024**3
_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_PATTERN = re.compile(
    r"([+-]?)([0-9]+\.?[0-9]*|\.[0-9]+)(?:(Ki|Mi|Gi|Ti|Pi|Ei)|[eE]([+-]?[0-9]{1,3})|([numkMGTPE]?))", re.ASCII
)
_INT64 = 2**63 - 1
_MAX_TEXT = 64


class QuantityError(ValueError):
    """Not a quantity at all (`malformed`), or one outside what the field can hold."""

    def __init__(self, message: str, *, malformed: bool) -> None:
        super().__init__(message)
        self.malformed = malformed


def parse_quantity(text: str) -> Fraction:
    """The exact value of a quantity such as `8Gi`, `100m`, `1e3`, in the field's own unit (bytes, cores, cards).

    Raises:
        QuantityError: malformed text, or a value over int64.
    """
    match = _PATTERN.fullmatch(text) if len(text) <= _MAX_TEXT else None
    if match is None:
        raise QuantityError(
            f"{text[:_MAX_TEXT]!r} is not a quantity; write a number with n u m k M G T P E or Ki Mi Gi Ti Pi Ei",
            malformed=True,
        )
    sign, digits, binary, exponent, decimal = match.groups()
    value = Fraction(Decimal(digits))
    if binary:
        value *= 1024 ** _BINARY[binary]
    else:
        power = int(exponent) if exponent else _DECIMAL[decimal or ""]
        value *= Fraction(10) ** power
    if value > _INT64:
        raise QuantityError(f"{text} is over 9223372036854775807", malformed=False)
    return -value if sign == "-" else value


def parse_count(text: str) -> int:
    """A quantity that must be a whole, non-negative number (cards, bytes)."""
    value = parse_quantity(text)
    if value < 0:
        raise QuantityError(f"{text} is negative", malformed=False)
    if value.denominator != 1:
        raise QuantityError(f"{text} is not a whole number", malformed=False)
    return int(value)


def parse_milli(text: str) -> int:
    """A non-negative quantity in thousandths, rounded up as Kubernetes does (CPU)."""
    value = parse_quantity(text)
    if value < 0:
        raise QuantityError(f"{text} is negative", malformed=False)
    return int(-(-(value * 1000) // 1))


def format_bytes(count: int) -> str:
    """Bytes for people: `98.4 MB` style with binary units, three digits."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return ""


def format_quantity(count: int) -> str:
    """Bytes as the shortest exact binary quantity: 8589934592 becomes `8Gi`."""
    for suffix, power in reversed(_BINARY.items()):
        if count and count % 1024**power == 0:
            return f"{count // 1024**power}{suffix}"
    return str(count)


def format_milli(milli: int) -> str:
    """Thousandths as a quantity: 1500 becomes `1500m`, 2000 becomes `2`."""
    return str(milli // 1000) if milli % 1000 == 0 else f"{milli}m"
