"""Who asks, from the tables in memory; look-ups are remembered until the tables change.

Read next: ../domain/auth.py.
"""

from __future__ import annotations

from services.gateway.dataplane.answers import Headers
from services.gateway.dataplane.feed import Feed
from services.gateway.domain.auth import bearer, token_hash
from services.gateway.domain.tables import Index, Key
from shared.clock import Clock
from shared.errors import Unauthenticated, Unavailable

_REMEMBERED = 4096


class Access:
    """One worker's door."""

    def __init__(self, feed: Feed, server_key: bytes, clock: Clock, max_stale: float) -> None:
        self._feed = feed
        self._server_key = server_key
        self._clock = clock
        self._max_stale = max_stale
        self._version = -1
        self._known: dict[tuple[bytes, ...], Key] = {}

    @property
    def index(self) -> Index:
        """The tables."""
        return self._feed.index

    def key(self, headers: Headers) -> Key:
        """The key of a request.

        Raises:
            Unauthenticated: none, not a known one, or one that is void. It is not echoed.
            Unavailable: this worker cannot tell: it has no tables yet, or too old ones.
        """
        if self._feed.version != self._version:
            self._known.clear()
            self._version = self._feed.version
        sent = tuple(value for name, value in headers if name in {b"authorization", b"x-api-key"})
        key = self._known.get(sent)
        if key is None:
            key = self._look_up(headers)
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[sent] = key
        if key.expires and key.expires <= self._clock.now().timestamp():
            raise Unauthenticated("the key has expired")
        if self._feed.stale_seconds > self._max_stale:
            raise Unavailable("keys cannot be confirmed: the control plane has been away for too long")
        return key

    def _look_up(self, headers: Headers) -> Key:
        token = bearer(headers)
        if not token:
            raise Unauthenticated("no key was sent")
        key = self._feed.index.keys.get(token_hash(self._server_key, token))
        if key is None and not self._feed.loaded:
            raise Unavailable("this worker is starting: it does not know any key yet")
        if key is None:
            raise Unauthenticated("the key is not known, or no longer valid")
        return key
