"""Who asks, and what they may do: bearer tokens, keyed hashes, and the rights of the four roles.

Secrets are compared in constant time, hashed with the server's own key, and never part of a message.
Must not read files or tables; callers bring them. Read next: rules.py (ApiKey).
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from shared.errors import PermissionDenied, Unauthenticated
from shared.resources.kinds import Kind

Role = Literal["admin", "editor", "viewer", "model-user"]
Verb = Literal["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"]

TOKEN_PREFIX = "gb_"  # noqa: S105 - marks tokens, is none
SHOWN_CHARACTERS = 7
"""How much of a key is shown to tell keys apart: the prefix and 16 of its 128 bits."""
_TOKEN = re.compile(r"[\x21-\x7e]{8,512}", re.ASCII)
_READS = frozenset({"get", "list", "watch"})
_ADMIN_ONLY = frozenset({"ApiKey", "Setting"})
"""A key could raise its own holder; a setting changes everybody's system."""


@dataclass(frozen=True, slots=True)
class Principal:
    """Somebody whose token was good."""

    name: str
    role: Role
    namespace: str = ""
    """Where the role counts; empty for an administrator: everywhere."""
    key: str = ""
    """The ApiKey's uid; empty for the administrator's own token, which does not end."""
    expires: datetime | None = None
    """When the key ends by itself."""


def bearer(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """The token of a request: `Authorization: Bearer …` (any case) or `x-api-key`; empty when there is none.

    Raises:
        Unauthenticated: another scheme, a token with blanks or control characters, or two different ones.
    """
    found: set[str] = set()
    for name, value in headers:
        if name == b"authorization":
            scheme, _, token = value.decode("latin-1").partition(" ")
            if scheme.lower() != "bearer":
                raise Unauthenticated("the Authorization header must be: Bearer <key>")
            found.add(_checked(token))
        elif name == b"x-api-key":
            found.add(_checked(value.decode("latin-1")))
    if len(found) > 1:
        raise Unauthenticated("two different keys were sent")
    return found.pop() if found else ""


def _checked(token: str) -> str:
    if not _TOKEN.fullmatch(token):
        raise Unauthenticated(
            "the key is not in a form that was ever issued; it may be cut short or have blanks around it"
        )
    return token


def new_token(random_bytes: bytes) -> str:
    """A key from 16 random bytes."""
    return f"{TOKEN_PREFIX}{random_bytes[:16].hex()}"


def token_hash(server_key: bytes, token: str) -> str:
    """What is stored of a key: useless without the server's own."""
    return hmac.new(server_key, token.encode(), hashlib.sha256).hexdigest()


def same(one: str, other: str) -> bool:
    """Comparison that takes as long whatever is different."""
    return hmac.compare_digest(one.encode(), other.encode())


def authorise(principal: Principal, verb: Verb, kind: Kind, namespace: str | None, name: str = "") -> None:
    """Whether the principal may do this; `namespace` is None for all of them.

    admin: everything. editor: everything in its namespace but keys, settings and what the system keeps. viewer: reads its
    namespace, Secrets without values. Both read cluster-wide kinds, and of the Namespaces their own. model-user: only /v1.

    Raises:
        PermissionDenied: it may not.
    """
    if principal.role == "admin":
        return
    if principal.role == "model-user" or kind.kind in _ADMIN_ONLY:
        raise _denied(principal, verb, kind, namespace)
    reads = verb in _READS
    if not kind.namespaced:
        if not reads or (kind.kind == "Namespace" and name != principal.namespace):
            raise _denied(principal, verb, kind, namespace)
        return
    if namespace != principal.namespace or not (reads or principal.role == "editor"):
        raise _denied(principal, verb, kind, namespace)


def sees_secrets(principal: Principal) -> bool:
    """Whether values of Secrets are shown: to those who may write them."""
    return principal.role in {"admin", "editor"}


def _denied(principal: Principal, verb: str, kind: Kind, namespace: str | None) -> PermissionDenied:
    where = "in all namespaces" if namespace is None else f"in namespace {namespace!r}" if namespace else "cluster-wide"
    held = f"{principal.role} of namespace {principal.namespace!r}" if principal.namespace else principal.role
    sentence = f'{kind.plural} is forbidden: "{principal.name}" ({held}) cannot {verb} {kind.plural} {where}'
    return PermissionDenied(sentence, (), {"kind": kind.plural, "group": kind.group})
