"""What a worker knows: models with their endpoints, and keys by hash. Pure data, replaced as a whole.

The gateway process builds it from documents, a worker serves from it, and the snapshot file holds it; it carries keyed
hashes only. Read next: routing.py.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class Endpoint(msgspec.Struct, frozen=True, array_like=True):
    """Where one ready replica answers."""

    host: str
    port: int
    path: str = ""
    token: str = ""
    replica: str = ""


class Model(msgspec.Struct, frozen=True, array_like=True):
    """One served name of one namespace."""

    namespace: str
    name: str
    created: int = 0
    endpoints: tuple[Endpoint, ...] = ()
    waiting: str = ""
    """Why no replica is ready, in words; empty when one is."""


class Key(msgspec.Struct, frozen=True, array_like=True):
    """One API key by its keyed hash."""

    hash: str
    uid: str
    namespace: str
    role: str
    models: tuple[str, ...] = ()
    expires: float = 0.0
    """Unix seconds; 0 never."""


class Tables(msgspec.Struct, frozen=True, array_like=True):
    """Everything, as of one moment."""

    models: tuple[Model, ...] = ()
    keys: tuple[Key, ...] = ()


ADMIN = Key(hash="", uid="admin", namespace="", role="admin")


class Index:
    """Tables made quick to look up."""

    def __init__(self, tables: Tables, admin_hash: str = "") -> None:
        self.tables = tables
        self.keys: Mapping[str, Key] = {key.hash: key for key in tables.keys} | (
            {admin_hash: ADMIN} if admin_hash else {}
        )
        self.by_place: Mapping[tuple[str, str], Model] = {(m.namespace, m.name): m for m in tables.models}
        named: dict[str, list[Model]] = {}
        for model in tables.models:
            named.setdefault(model.name, []).append(model)
        self.by_name: Mapping[str, list[Model]] = named


def encode(tables: Tables) -> bytes:
    """For the feed and the snapshot file."""
    return msgspec.msgpack.encode(tables)


def decode(raw: bytes) -> Tables:
    """What `encode` wrote.

    Raises:
        ValueError: something else.
    """
    return msgspec.msgpack.decode(raw, type=Tables)
