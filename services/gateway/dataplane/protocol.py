"""uvicorn's HTTP protocol, with its own refusals in the form that clients of /v1 read.

Must not know what is served. Read next: worker.py.
"""

from __future__ import annotations

import orjson
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from shared.errors import FACES, Code

_SENTENCE = "this is not a valid HTTP/1.1 request"


class Protocol(HttpToolsProtocol):
    """One connection of a client."""

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - uvicorn's sentence is for logs
        """What cannot be parsed; the connection ends, for nobody knows where a next request would begin."""
        if self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete:
            # The bytes would become part of the answer that is being sent.
            self.transport.close()
            return
        error = {"message": _SENTENCE, "type": FACES[Code.MALFORMED].openai_type, "param": None, "code": None}
        body = orjson.dumps({"error": error})
        head = b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: %d\r\nconnection: close"
        self.transport.write(b"%b\r\n\r\n%b" % (head % len(body), body))
        self.transport.close()
