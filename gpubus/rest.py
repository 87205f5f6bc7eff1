"""The gateway's REST API from the command line: one connection a call, errors as refusals in one sentence.

Standard library only. Must not know kinds. Read next: gpubus/kinds.py.
"""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode, urlsplit

from gpubus.datadir import resolve
from gpubus.environment import variable
from gpubus.refusal import Refusal

_PATIENCE = 30.0
_JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Api:
    """Where the gateway is and who we are."""

    url: str
    token: str = field(repr=False)

    def call(
        self, method: str, path: str, *, query: Mapping[str, str] | None = None, body: Any = None,
        accept: str = _JSON, content: str = _JSON, fine: tuple[int, ...] = (),
    ) -> tuple[int, Any]:  # fmt: skip
        """One request; (status, JSON or text). A status over 399 that is not in `fine` is refused.

        Raises:
            Refusal: nobody answers, or the answer is an error.
        """
        with self.open(method, path, query=query, body=body, accept=accept, content=content) as reply:
            raw = reply.read()
            answer = _decoded(raw, reply.getheader("Content-Type") or "")
            if reply.status >= http.client.BAD_REQUEST and reply.status not in fine:
                raise Refusal(sentence_of(reply.status, answer))
            return reply.status, answer

    @contextmanager
    def open(
        self, method: str, path: str, *, query: Mapping[str, str] | None = None, body: Any = None,
        accept: str = _JSON, content: str = _JSON, timeout: float | None = _PATIENCE,
    ) -> Iterator[http.client.HTTPResponse]:  # fmt: skip
        """The same with the answer as a stream; closed at the end of the block.

        Raises:
            Refusal: nobody answers.
        """
        link = self._connection(timeout)
        headers = {"Accept": accept, "Authorization": f"Bearer {self.token}"}
        if body is not None:
            headers["Content-Type"] = content
        target = f"{path}?{urlencode(query)}" if query else path
        try:
            try:
                link.request(method, target, None if body is None else json.dumps(body), headers)
                reply = link.getresponse()
            except (OSError, http.client.HTTPException) as error:
                raise Refusal(
                    f"No gateway answers at {self.url} ({error}): start one with `gpubus up`, or set GPUBUS_URL or --data-dir."
                ) from error
            yield reply
        finally:
            link.close()

    def lines(self, path: str, *, query: Mapping[str, str], accept: str = _JSON) -> Iterator[bytes]:
        """A streamed answer line by line, until the other side ends it.

        Raises:
            Refusal: the answer is an error.
        """
        with self.open("GET", path, query=query, accept=accept, timeout=None) as reply:
            if reply.status >= http.client.BAD_REQUEST:
                raise Refusal(sentence_of(reply.status, _decoded(reply.read(), _JSON)))
            while line := reply.readline():
                yield line

    def _connection(self, timeout: float | None) -> http.client.HTTPConnection:
        parts = urlsplit(self.url)
        if parts.scheme == "https":
            context = ssl.create_default_context(cafile=variable("GPUBUS_CA") or None)
            return http.client.HTTPSConnection(
                parts.hostname or "", parts.port or 443, timeout=timeout, context=context
            )
        return http.client.HTTPConnection(parts.hostname or "", parts.port or 80, timeout=timeout)


def connect(data_dir: str = "") -> Api:
    """GPUBUS_URL and GPUBUS_TOKEN, unless `--data-dir` names a stack; else the default data dir's `env`.

    Raises:
        Refusal: neither is there.
    """
    if not data_dir and variable("GPUBUS_URL"):
        return Api(variable("GPUBUS_URL").rstrip("/"), variable("GPUBUS_TOKEN"))
    where = resolve(data_dir)
    exports = where.exports()
    if "GPUBUS_URL" not in exports:
        raise Refusal(
            f"No stack was ever started in {where.root}: run `gpubus up`, or set GPUBUS_URL and GPUBUS_TOKEN, or --data-dir."
        )
    return Api(exports["GPUBUS_URL"], exports.get("GPUBUS_TOKEN", ""))


def sentence_of(status: int, answer: Any) -> str:
    """What an error answer says, of either of the gateway's faces."""
    if isinstance(answer, dict):
        error = answer.get("error")
        said = answer.get("message") or (error.get("message") if isinstance(error, dict) else error)
        if said:
            return str(said)
    return f"the gateway answered {status} without saying why"


def _decoded(raw: bytes, content_type: str) -> Any:
    if "json" in content_type:
        try:
            return json.loads(raw)
        except ValueError:
            return raw.decode(errors="replace")
    return raw.decode(errors="replace")
