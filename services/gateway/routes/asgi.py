"""The resource API as one ASGI callable: who asks, what is asked, which route answers; one log line a request.

Served on the unix socket (behind the workers, which own the public port) and on the TLS port. Must not serve /v1.
Read next: resources.py, writes.py, watch.py.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from prometheus_client import Counter, Histogram

from services.gateway.domain.auth import Principal, Verb, authorise, bearer
from services.gateway.routes import discovery, explain, health, logs, openapi, resources, scale, watch, writes
from services.gateway.routes.api import Answer, Api, NotAcceptable, Stream, Target, target_of
from services.gateway.routes.http import (
    ClientGone,
    Receive,
    Request,
    Response,
    Scope,
    Send,
    error_response,
    json_response,
    read_request,
    send_response,
)
from shared.bus.settle import outcome_of
from shared.errors import GpubusError, NotFound, PermissionDenied, Unauthenticated, Unavailable, Unimplemented
from shared.ids import random_suffix
from shared.telemetry.logging import get_logger

log = get_logger(__name__)

requests_total = Counter("gpubus_api_requests_total", "Requests of the resource API.", ["verb", "kind", "code"])
request_seconds = Histogram(
    "gpubus_api_request_seconds",
    "Seconds until the answer began.",
    ["verb"],
    buckets=(0.001, 0.005, 0.02, 0.1, 0.5, 2, 10),
)

_OPEN_TO_ALL = ("version", *health.PATHS)
_VERBS: dict[tuple[str, bool], Verb] = {
    ("GET", True): "get", ("GET", False): "list", ("POST", False): "create", ("PUT", True): "update",
    ("PATCH", True): "patch", ("DELETE", True): "delete", ("DELETE", False): "deletecollection",
}  # fmt: skip
_SECONDS = 60.0
"""Until an answer begins: more than any write takes."""

Route = Callable[[Api, Request, Principal, Target], Awaitable[Answer]]


class ResourceApi:
    """The application."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._pages = resources.Pages(OrderedDict())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One exchange; errors of every kind become a Status, never a traceback."""
        if scope["type"] != "http":
            return
        started = self._api.clock.monotonic()
        exchange = _Exchange(send)
        done = _Done()
        _, error = await outcome_of(lambda: self._tried(scope, receive, done), handler="resource_api", timeout=_SECONDS)
        if done.gone:
            return
        answer = done.answer if error is None and done.answer else _refused(error or Unavailable("no answer"))
        seconds = self._api.clock.monotonic() - started
        if isinstance(answer, Stream):
            await answer.run(exchange.send)
        else:
            await send_response(exchange.send, answer, done.request_id)
        self._record(scope, done, exchange.status, seconds)

    async def _tried(self, scope: Scope, receive: Receive, done: _Done) -> None:
        try:
            request = read_request(scope, receive)
            done.request_id = request.id
            done.answer, done.verb, done.kind = await self._answer(request)
        except ClientGone:
            done.gone = True

    async def _answer(self, request: Request) -> tuple[Answer, str, str]:
        first = request.segments[0] if request.segments else ""
        if first in _OPEN_TO_ALL and len(request.segments) <= (2 if first != "version" else 1):
            _only(request, "GET")
            return (
                (json_response(discovery.VERSION) if first == "version" else await health.health(self._api, first)),
                "get",
                first,
            )
        principal = self._principal(request)
        if first == "openapi":
            return self._openapi(request), "get", "openapi"
        if first not in {"api", "apis"}:
            raise NotFound(
                "the server could not find the requested resource; served are /api, /apis, /openapi/v3, /version and /v1"
            )
        if special := await self._special(request, principal):
            return special, request.method.lower(), request.segments[3]
        if len(request.segments) <= (2 if first == "api" else 3):
            _only(request, "GET")
            return discovery.discovery(request), "get", "discovery"
        return await self._resource(request, principal)

    def _principal(self, request: Request) -> Principal:
        token = bearer(request.headers)
        if not token:
            raise Unauthenticated("a key is needed: Authorization: Bearer <key>; keys in the address are not read")
        principal = self._api.principals.of(token)
        if principal.role == "model-user":
            raise PermissionDenied(f'"{principal.name}" may use models under /v1, not the resource API')
        return principal

    def _openapi(self, request: Request) -> Response:
        _only(request, "GET")
        if request.segments[1:] == ("v2",):
            return openapi.empty_v2()
        if request.segments[1:2] != ("v3",):
            raise NotFound("only /openapi/v3 is served")
        return openapi.group_document("/".join(request.segments[2:])) if len(request.segments) > 2 else openapi.index()

    async def _special(self, request: Request, principal: Principal) -> Response | None:
        if request.segments[:3] != ("apis", "gpubus.io", "v1"):
            return None
        match request.segments[3:]:
            case ("explain",):
                _only(request, "POST")
                return await explain.explain_what_if(self._api, request, principal)
            case ("operations", operation_id):
                _only(request, "GET")
                return await explain.operation(self._api, principal, operation_id)
        return None

    async def _resource(self, request: Request, principal: Principal) -> tuple[Answer, str, str]:
        target = target_of(request.segments)
        if target.subresource:
            answer = await self._subresource(request, principal, target)
            return answer, request.method.lower(), f"{target.kind.plural}/{target.subresource}"
        verb = _VERBS.get((request.method, bool(target.name)))
        allowed = set(discovery.verbs(target.kind))
        if verb is None or verb not in allowed or (verb == "create" and target.namespace is None):
            raise _not_allowed(request.method, target, allowed)
        watching = verb in {"get", "list"} and request.flag("watch")
        verb = "watch" if watching else verb
        authorise(principal, verb, target.kind, target.namespace, target.name)
        return await self._routed(verb, request, principal, target), verb, target.kind.plural

    async def _routed(self, verb: Verb, request: Request, principal: Principal, target: Target) -> Answer:
        if verb == "list":
            return await resources.list_objects(self._api, self._pages, request, principal, target)
        routes: dict[Verb, Route] = {
            "get": resources.get_one,
            "watch": watch.watch_objects,
            "create": writes.create,
            "update": writes.replace,
            "patch": writes.patch,
            "delete": writes.delete,
            "deletecollection": writes.delete_collection,
        }
        return await routes[verb](self._api, request, principal, target)

    async def _subresource(self, request: Request, principal: Principal, target: Target) -> Answer:
        reading = request.method == "GET"
        authorise(principal, "get" if reading else "update", target.kind, target.namespace, target.name)
        if target.subresource == "status":
            if not reading:
                raise PermissionDenied(
                    "status is written by the kind's owner alone", (), {"name": target.name, "kind": target.kind.plural}
                )
            return await resources.get_one(self._api, request, principal, target)
        if target.subresource == "scale":
            _only(request, "GET", "PUT", "PATCH")
            return await (
                scale.read_scale(self._api, target)
                if reading
                else scale.write_scale(self._api, request, principal, target)
            )
        _only(request, "GET")
        if target.subresource == "log":
            return await logs.read_log(self._api, request, principal, target)
        return await explain.explain_one(self._api, target)

    def _record(self, scope: Scope, done: _Done, status: int, seconds: float) -> None:
        verb = (done.verb or scope["method"]).lower()
        requests_total.labels(verb, done.kind, str(status)).inc()
        request_seconds.labels(verb).observe(seconds)
        write = log.info if scope["method"] != "GET" or status >= 400 else log.debug
        path = scope["path"][:512]
        write(
            "api_request",
            method=scope["method"],
            path=path,
            status=status,
            duration_ms=round(seconds * 1000, 2),
            request_id=done.request_id,
        )


@dataclass(slots=True)
class _Done:
    """How far one exchange came."""

    request_id: str = field(default_factory=lambda: f"req-{random_suffix(16)}")
    answer: Answer | None = None
    verb: str = ""
    kind: str = ""
    gone: bool = False


class _Exchange:
    """Remembers the status that was sent."""

    def __init__(self, send: Send) -> None:
        self.status = 0
        self._send = send

    async def send(self, message: dict[str, object]) -> None:
        if message["type"] == "http.response.start":
            self.status = int(str(message["status"]))
        await self._send(message)


def _refused(error: GpubusError) -> Response:
    response = error_response(error)
    if isinstance(error, NotAcceptable):
        response.status = 406
    return response


def _only(request: Request, *methods: str) -> None:
    if request.method not in methods:
        raise Unimplemented(
            f"{request.method} is not allowed here; use {', '.join(methods)}", (), {"allow": ", ".join(methods)}
        )


def _not_allowed(method: str, target: Target, allowed: set[str]) -> Unimplemented:
    methods = sorted({name for (name, named), verb in _VERBS.items() if named is bool(target.name) and verb in allowed})
    plural = target.kind.plural
    sentence = f"{method} is not allowed on {plural}"
    if target.kind.read_only:
        sentence = (
            f"{plural} are kept by the system: they can be read{' and deleted' * ('delete' in allowed)}, not written"
        )
    elif target.namespace is None and method == "POST":
        sentence += f"; POST to /namespaces/<namespace>/{plural}"
    return Unimplemented(
        sentence,
        (),
        {"allow": ", ".join(methods), "kind": plural},
    )
