"""Identifiers: what each string means, how new ones are minted, how derived ones are computed.

Must not hold state. Read next: shared/messages/base.py.
"""

from __future__ import annotations

import hashlib
import os
import uuid
from typing import NewType

NodeId = NewType("NodeId", str)
DeviceId = NewType("DeviceId", str)
Uid = NewType("Uid", str)

_FNV_OFFSET = 0xCBF29CE484222325
_FNV_PRIME = 0x100000001B3
_MASK64 = (1 << 64) - 1
# base32 without vowels and look-alikes: generated suffixes never spell words (the alphabet Kubernetes uses).
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"


def new_uid() -> Uid:
    """A random UUID for a new document; never reused."""
    return Uid(str(uuid.uuid4()))


def new_id(unix_ms: int) -> str:
    """UUIDv7 of the given wall-clock milliseconds: sortable, for commands and operations (RFC 9562 section 5.7)."""
    rand = int.from_bytes(os.urandom(10), "big")
    value = (
        (unix_ms & ((1 << 48) - 1)) << 80 | 0x7 << 76 | (rand >> 68 & 0xFFF) << 64 | 0b10 << 62 | rand & ((1 << 62) - 1)
    )
    return str(uuid.UUID(int=value))


def derived_id(*parts: str) -> str:
    """A UUID computed from its parts: the outside world dedupes by it."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, "\x1f".join(parts)))


def fnv1a64(text: str) -> str:
    """FNV-1a 64 of UTF-8 text as 16 hex digits; entrance names carry it."""
    value = _FNV_OFFSET
    for byte in text.encode():
        value = ((value ^ byte) * _FNV_PRIME) & _MASK64
    return f"{value:016x}"


def short_suffix(*parts: str, length: int = 5) -> str:
    """A short name suffix computed from its parts, safe in DNS names."""
    number = int.from_bytes(hashlib.sha256("\x1f".join(parts).encode()).digest()[:8], "big")
    out = ""
    for _ in range(length):
        number, digit = divmod(number, len(_ALPHABET))
        out += _ALPHABET[digit]
    return out


def random_suffix(length: int = 5) -> str:
    """A random name suffix (generateName)."""
    return short_suffix(uuid.uuid4().hex, length=length)
