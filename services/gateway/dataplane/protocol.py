"""uvicorn's HTTP protocol, with refusals in the form that clients of /v1 read, and offers of other protocols declined.

Must not know what is served. Read next: worker.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import httptools
import orjson
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from shared.errors import FACES, Code

_SENTENCE = "this is not a valid HTTP/1.1 request"
_STATUS = b"HTTP/1.1 "
_LONGEST_HEAD = 64 * 1024
"""The parser itself has no limit."""
_LINGER_SECONDS = 2.0
_PHRASES = {400: b"Bad Request", 431: b"Request Header Fields Too Large"}
_OFFER = frozenset({b"upgrade", b"http2-settings", b"connection"})


class Joining(asyncio.Transport):
    """A transport that sends the head of an answer together with the first bytes of its body: one system call less."""

    def __init__(
        self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, still_sends: Callable[[], bool]
    ) -> None:
        super().__init__()
        self.lingers = False
        """The answer is sent and the end said; what the client still sends is dropped."""
        self._transport = transport
        self._loop = loop
        self._soon = loop.call_soon
        self._still_sends = still_sends
        self._held = b""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send, or hold a head until the next write or the loop's next turn."""
        if self._held:
            data, self._held = self._held + bytes(data), b""
        elif data[:9] == _STATUS:
            self._held = bytes(data)
            self._soon(self._flush)
            return
        self._transport.write(data)

    def _flush(self) -> None:
        if self._held:
            held, self._held = self._held, b""
            self._transport.write(held)

    def close(self) -> None:
        """After everything that was written. A client in the midst of its body would take a reset for the answer."""
        self._flush()
        if self.lingers or not self._still_sends() or not self._transport.can_write_eof():
            self._transport.close()
            return
        self.lingers = True
        self._transport.write_eof()
        self._transport.resume_reading()
        self._loop.call_later(_LINGER_SECONDS, self._transport.close)

    def is_closing(self) -> bool:
        """Whether it ends."""
        return self.lingers or self._transport.is_closing()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Addresses and the like."""
        return self._transport.get_extra_info(name, default)

    def pause_reading(self) -> None:
        """Hold the client back."""
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Let it go on."""
        self._transport.resume_reading()


class Protocol(HttpToolsProtocol):
    """One connection of a client."""

    _in_head = False
    _head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Connected."""
        super().connection_made(Joining(transport, self.loop, self._in_body))

    def data_received(self, data: bytes) -> None:
        """Bytes of requests."""
        if self.transport.lingers:  # type: ignore[attr-defined]
            return
        self._unset_keepalive_if_required()
        try:
            self.parser.feed_data(data)
            self._head_bytes = self._head_bytes + len(data) if self._in_head else 0
            if self._head_bytes > _LONGEST_HEAD:
                self._refuse(431, f"the head of the request has more than {_LONGEST_HEAD} bytes")
        except httptools.HttpParserError:
            self.send_400_response(_SENTENCE)
        except httptools.HttpParserUpgrade as offer:
            if self.parser.get_method() == b"CONNECT":
                self.send_400_response(_SENTENCE)
            else:
                self._decline(data[offer.args[0] :])

    def _in_body(self) -> bool:
        """Whether a request has begun whose last byte is not there."""
        return self.cycle is not None and self.cycle.more_body and not self.cycle.disconnected

    def _decline(self, rest: bytes) -> None:
        """Take the request as if nothing had been offered: the parser gives up its body (curl --http2, Java) else."""
        lines = [b"%b %b HTTP/%b" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())]
        lines += [b"%b: %b" % header for header in self.headers if header[0] not in _OFFER]
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does
        self.data_received(b"\r\n".join(lines) + b"\r\n\r\n" + rest)

    def on_message_begin(self) -> None:
        """The first byte of a request."""
        super().on_message_begin()
        self._in_head = True

    def on_headers_complete(self) -> None:
        """A request begins, but for one that comes again without its offer."""
        self._in_head = False
        if not self.parser.should_upgrade():
            super().on_headers_complete()
            self.headers = []  # what comes behind the body is no header

    def on_message_complete(self) -> None:
        """It ends."""
        if not self.parser.should_upgrade():
            super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """What cannot be parsed; the connection ends, for nobody knows where a next request would begin."""
        self._refuse(400, msg)

    def _refuse(self, status: int, msg: str) -> None:
        if self.cycle is not None and not self.cycle.response_complete and self.cycle.response_started:
            # The bytes would become part of the answer that is being sent.
            self.transport.close()
            return
        error = {"message": msg, "type": FACES[Code.MALFORMED].openai_type, "param": None, "code": None}
        body = orjson.dumps({"error": error})
        head = b"HTTP/1.1 %d %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\nconnection: close"
        self.transport.write(b"%b\r\n\r\n%b" % (head % (status, _PHRASES[status], len(body)), body))
        self.transport.close()
