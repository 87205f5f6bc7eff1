"""Who a token belongs to: the administrator's own, and the API keys in the store.

Keeps only hashes, in memory, fed by the cache. Owns the server's key for them (a 0600 file, made when missing).
Read next: ../domain/auth.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from services.gateway.domain.auth import Principal, Role, same, token_hash
from shared.clock import Clock
from shared.errors import FailedPrecondition, Unauthenticated
from shared.store.cache import DELETED, Change, DocumentCache
from shared.store.documents import Document

_KEY_BYTES = 32


def server_key(path: Path) -> bytes:
    """The secret that hashes of keys depend on; copies of the gateway must share it.

    Raises:
        FailedPrecondition: the file is there but too short.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    if not path.exists():
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.write(descriptor, secrets.token_hex(_KEY_BYTES).encode())
            os.fsync(descriptor)
            # link fails when another copy was quicker; then its file counts.
            os.link(fresh, path)
        except FileExistsError:
            pass
        finally:
            os.close(descriptor)
            fresh.unlink()
    found = path.read_bytes().strip()
    if len(found) < _KEY_BYTES:
        raise FailedPrecondition(
            f"{path} does not hold a key of at least {_KEY_BYTES} characters; remove it to make a new one (all API keys become void)"
        )
    return found


class Principals:
    """Looks tokens up; a change of a key counts from the moment the cache has it."""

    def __init__(self, cache: DocumentCache, key: bytes, admin_token: str, clock: Clock) -> None:
        self._key = key
        self._admin_hash = token_hash(key, admin_token) if admin_token else ""
        self._clock = clock
        self._by_hash: dict[str, Document] = {}
        self._followed: dict[str, asyncio.Event] = {}
        """By uid of a key: set when it no longer opens what it did."""
        cache.listen(self._changed)

    def hash(self, token: str) -> str:
        """What is stored of a token."""
        return token_hash(self._key, token)

    def of(self, token: str) -> Principal:
        """Who it is.

        Raises:
            Unauthenticated: nobody's token, or one that is disabled, expired or being deleted. It is not echoed.
        """
        found = self.hash(token)
        if self._admin_hash and same(found, self._admin_hash):
            return Principal("admin", "admin")
        document = self._by_hash.get(found)
        if document is None or not self._valid(document):
            raise Unauthenticated("the key is not known, or no longer valid")
        return _principal(document)

    async def lost(self, principal: Principal) -> None:
        """Returns when what the principal may do ends or changes: its key expired, was changed, disabled or deleted."""
        if not principal.key:
            await asyncio.Event().wait()
        changed = self._followed.setdefault(principal.key, asyncio.Event())
        held = next((d for d in self._by_hash.values() if d.uid == principal.key), None)
        if held is None or not self._valid(held) or _principal(held) != principal:
            return
        left = (principal.expires - self._clock.now()).total_seconds() if principal.expires else None
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(changed.wait(), left)

    def _valid(self, document: Document) -> bool:
        spec: dict[str, Any] = document.body.get("spec") or {}
        if spec.get("disabled") or document.deleting:
            return False
        expires = spec.get("expires")
        return not expires or _moment(expires) > self._clock.now()

    def _changed(self, change: Change) -> None:
        if change.kind != "ApiKey":
            return
        for document in filter(None, (change.old, change.document)):
            self._by_hash.pop(_hash(document), None)
        if change.type != DELETED and _hash(change.document):
            self._by_hash[_hash(change.document)] = change.document
        same_rights = change.old is not None and _principal(change.old) == _principal(change.document)
        if change.type == DELETED or not same_rights or not self._valid(change.document):
            for uid in {document.uid for document in (change.old, change.document) if document is not None}:
                self._followed.pop(uid, asyncio.Event()).set()


def _principal(document: Document) -> Principal:
    spec: dict[str, Any] = document.body.get("spec") or {}
    role: Role = spec.get("role", "model-user")
    expires = _moment(spec["expires"]) if spec.get("expires") else None
    return Principal(document.name, role, "" if role == "admin" else document.namespace, document.uid, expires)


def _hash(document: Document) -> str:
    return str((document.body.get("spec") or {}).get("hash") or "")


def _moment(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return datetime.min.replace(tzinfo=UTC)  # unreadable counts as expired
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
