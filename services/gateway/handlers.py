"""What comes to the gateway over the bus: writes of its own kinds, secrets for services, users' own commands.

Each loads, decides by the kind's rules, commits. Must not know HTTP. Read next: domain/rules.py, store/objects.py.
"""

from __future__ import annotations

import base64
import binascii
import secrets
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from services.gateway.domain.auth import SHOWN_CHARACTERS, new_token
from services.gateway.domain.decoding import address, kind_of
from services.gateway.domain.rules import check_deletion, without_key_material
from services.gateway.domain.status import success
from services.gateway.domain.view import shown
from services.gateway.store.namespaces import Namespaces
from services.gateway.store.objects import Objects, Options, Place
from services.gateway.store.principals import Principals
from shared.bus.context import MessageContext, UserCommand
from shared.bus.router import on, query, request, user_command
from shared.bus.settle import Undecodable
from shared.commands.objects import WriteAnswer, WriteObject
from shared.errors import Cause, FailedPrecondition, GpubusError, Malformed, NotFound, invalid
from shared.events.objects import GatewayObjectRemoved
from shared.faults import point
from shared.manifest_text import load_one
from shared.queries import ReadSecret, SecretAnswer
from shared.resources.kinds import Kind
from shared.store.client import Store
from shared.store.objects import ObjectWriter

FORCE = "x-gpubus-force"
"""Header of a user's apply: take fields over from other managers."""
MANAGER = "bus"
_VERBS = ("apply", "create", "delete")
_KEPT_TOKENS = 1000


class Handlers:
    """The gateway's side of the bus."""

    def __init__(
        self, store: Store, writer: ObjectWriter, objects: Objects, principals: Principals, namespaces: Namespaces
    ) -> None:
        self._store = store
        self._writer = writer
        self._objects = objects
        self._principals = principals
        self._namespaces = namespaces
        self._tokens: OrderedDict[str, str] = OrderedDict()
        """Tokens just issued, by idempotency key: a caller that lost the answer and asks again gets the same one."""

    @request(WriteObject)
    async def write_object(self, write: WriteObject, ctx: MessageContext) -> WriteAnswer:  # noqa: ARG002
        """A write of a kind that the gateway owns."""
        point("gateway.before-commit")
        try:
            if write.verb == "delete":
                check_deletion(write.kind, write.name)
            answer = await (self._write_key(write) if write.kind == "ApiKey" else self._writer.write(write))
        except GpubusError as error:
            return WriteAnswer(error=error.to_dict(), operation_id=write.operation_id)
        point("gateway.after-commit")
        return answer

    @query(ReadSecret)
    async def read_secret(self, question: ReadSecret, ctx: MessageContext) -> SecretAnswer:  # noqa: ARG002
        """Values of one Secret, for services; NATS lets nobody else ask.

        Raises:
            NotFound: no such Secret. FailedPrecondition: a value is no text.
        """
        found = await self._store.get("Secret", question.namespace, question.name)
        if found is None or found.deleting:
            raise NotFound(f'secret "{question.name}" not found', (), {"kind": "Secret", "name": question.name})
        data: Mapping[str, str] = found.body.get("data") or {}
        wanted = question.keys or list(data)
        return SecretAnswer(data={key: _plain(key, data[key]) for key in wanted if key in data})

    @on(GatewayObjectRemoved)
    async def on_namespace_removed(self, fact: GatewayObjectRemoved, ctx: MessageContext) -> None:  # noqa: ARG002
        """A namespace is to go: its content of ours first."""
        if fact.kind == "Namespace":
            await self._namespaces.settle(fact.name)

    @user_command()
    async def apply(self, command: UserCommand, ctx: MessageContext) -> Mapping[str, Any]:
        """What `kubectl apply`, `create` or `delete` of the same document does, with the same errors.

        Raises:
            Undecodable: not YAML or JSON. GpubusError: the refusal.
        """
        if command.verb not in _VERBS:
            raise invalid("x-gpubus-verb", f"must be one of {', '.join(_VERBS)}")
        try:
            body = load_one(command.body)
        except Malformed as error:
            raise Undecodable(error.message, error.causes, error.fields) from None
        kind = kind_of(body)
        place = _place(kind, body, command.namespace)
        options = Options(
            user=command.principal,
            manager=MANAGER,
            force=ctx.headers.get(FORCE, "") == "true",
            idempotency=ctx.message_id,
        )
        filled = address(kind, body, place.namespace, place.name)
        if command.verb == "delete":
            written = await self._objects.delete(place, options)
        elif command.verb == "create":
            written = await self._objects.create(place, filled, options)
        else:
            written = await self._objects.apply(place, filled, options)
        return success(written.details) if written.body is None else shown(kind, written.body)

    async def _write_key(self, write: WriteObject) -> WriteAnswer:
        if write.verb == "create":
            return await self._issue(write)
        if write.verb == "replace" and write.object is not None:
            write = await self._with_hash(write)
        return await self._writer.write(write)

    async def _issue(self, write: WriteObject) -> WriteAnswer:
        """A new key; its token is in this answer and nowhere else."""
        body = write.object or {}
        spec = dict(body.get("spec") or {})
        without_key_material(spec)
        token = self._tokens.get(write.idempotency_key) or new_token(secrets.token_bytes(16))
        spec |= {"hash": self._principals.hash(token), "prefix": token[:SHOWN_CHARACTERS]}
        answer = await self._writer.write(write.model_copy(update={"object": {**body, "spec": spec}}))
        stored = (answer.object or {}).get("spec") or {}
        if write.dry_run or stored.get("hash") != spec["hash"]:
            return answer
        if write.idempotency_key:
            self._tokens[write.idempotency_key] = token
            if len(self._tokens) > _KEPT_TOKENS:
                self._tokens.popitem(last=False)
        assert answer.object is not None, "a stored key has a body"
        status = {**(answer.object.get("status") or {}), "token": token}
        return answer.model_copy(update={"object": {**answer.object, "status": status}})

    async def _with_hash(self, write: WriteObject) -> WriteObject:
        """Readers are not shown the hash, so what they send back does not have it."""
        current = await self._store.get(write.kind, write.namespace, write.name)
        if current is None:
            return write
        assert write.object is not None, "a replace has an object"
        kept = {name: current.body["spec"].get(name) for name in ("hash", "prefix")}
        spec = {**kept, **(write.object.get("spec") or {})}
        return write.model_copy(update={"object": {**write.object, "spec": spec}})


def _place(kind: Kind, body: Mapping[str, Any], namespace: str) -> Place:
    """Where a bare manifest goes: the subject's namespace, or (subject `_`) the one that it names itself.

    Raises:
        Malformed: it names none, or no name.
    """
    metadata = body.get("metadata")
    if not isinstance(metadata, Mapping):
        raise Malformed("metadata is required", (Cause("metadata", "is required", "FieldValueRequired"),))
    name, own = metadata.get("name") or "", metadata.get("namespace") or ""
    if not isinstance(name, str) or not isinstance(own, str):
        raise Malformed("metadata.name and metadata.namespace must be text", (Cause("metadata", "must have texts"),))
    if not kind.namespaced:
        return Place(kind, "", name)
    return Place(kind, namespace or own or "default", name)


def _plain(key: str, value: str) -> str:
    try:
        return base64.b64decode(value, validate=True).decode()
    except (binascii.Error, ValueError):
        raise FailedPrecondition(f"key {key} of the secret is no text") from None
