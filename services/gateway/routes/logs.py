"""Logs of a Pod: asked of the agent of its node, piece by piece, as `kubectl logs` reads them.

The gateway keeps nothing of them. Must not reach nodes other than by the bus. Read next: shared/queries.py (ReadLog).
"""

from __future__ import annotations

import asyncio

from services.gateway.domain.auth import Principal
from services.gateway.routes.api import Api, Stream, Target
from services.gateway.routes.http import Request, Send, pumped, send_head
from shared.errors import FailedPrecondition, GpubusError, Malformed, NotFound
from shared.queries import LogAnswer, ReadLog
from shared.telemetry.logging import get_logger

log = get_logger(__name__)

FOLLOW_SECONDS = 0.5
_ASK_SECONDS = 3.0
_PIECE = 256 * 1024
_TAIL_LIMIT = 100_000


async def read_log(api: Api, request: Request, principal: Principal, target: Target) -> Stream:
    """GET …/pods/NAME/log. The first piece is read before anything is answered, so that a refusal is a Status.

    Raises:
        NotFound: no such Pod. FailedPrecondition: it has no node yet. Unavailable: its node does not answer.
    """
    if target.kind.kind != "Pod":
        raise NotFound(f"{target.kind.plural} have no log")
    pod = api.watch.get("Pod", target.namespace or "", target.name)
    if pod is None:
        raise NotFound(f'pods "{target.name}" not found', (), {"name": target.name, "kind": "pods"})
    node = (pod.body.get("spec") or {}).get("nodeName")
    if not node:
        raise FailedPrecondition(
            f'pod "{target.name}" has no node yet: it waits for capacity', (), {"name": target.name, "kind": "pods"}
        )
    tail, limit = request.number("tailLines"), request.number("limitBytes")
    if tail is not None and tail > _TAIL_LIMIT:
        raise Malformed(f"tailLines: at most {_TAIL_LIMIT}")
    question = ReadLog(
        node=node,
        uid=pod.uid,
        offset=0 if tail is None else -1,
        tail_lines=tail or 0,
        max_bytes=min(limit or _PIECE, _PIECE),
        previous=request.flag("previous"),
    )
    reader = _Reader(api, principal, question, limit, follow=request.flag("follow") and not question.previous)
    first = LogAnswer(ended=False) if tail == 0 and not reader.follow else await reader.ask()
    return Stream(lambda send: reader.run(send, request, first))


class _Reader:
    """One caller reading one log."""

    def __init__(self, api: Api, principal: Principal, question: ReadLog, limit: int | None, *, follow: bool) -> None:
        self.follow = follow
        self._api = api
        self._principal = principal
        self._question = question
        self._left = limit

    async def ask(self) -> LogAnswer:
        """The next piece.

        Raises:
            GpubusError: the node's agent refuses or does not answer.
        """
        answer: LogAnswer = await self._api.bus.ask(self._question, _ASK_SECONDS)
        self._question = self._question.model_copy(update={"offset": answer.next_offset})
        return answer

    async def run(self, send: Send, request: Request, first: LogAnswer) -> None:
        """Send until the end, the limit, or until the caller is gone."""
        await send_head(send, 200, "text/plain; charset=utf-8", request.id)
        gone = asyncio.ensure_future(request.gone())
        await pumped(self._pump(send, first), gone, self._api.principals.lost(self._principal))
        if gone.cancelled():  # nobody hung up: the log ended, or the key that opened it did
            await send({"type": "http.response.body", "body": b""})

    async def _pump(self, send: Send, piece: LogAnswer) -> None:
        while True:
            data = piece.text.encode()[: self._left]
            if self._left is not None:
                self._left -= len(data)
            if data:
                await send({"type": "http.response.body", "body": data, "more_body": True})
            if self._left == 0 or (not data and (piece.ended or not self.follow)):
                return
            if not data:
                await asyncio.sleep(FOLLOW_SECONDS)
            try:
                piece = await self.ask()
            except GpubusError as error:
                # The head is sent: the end of the stream is all that can be said.
                log.info("log_cut_short", code=error.code.value, node=self._question.node)
                return
