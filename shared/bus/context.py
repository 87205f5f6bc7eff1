"""What a handler knows about the message in its hands besides the message itself.

Must not touch business. Read next: shared/bus/settle.py.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shared.store.documents import InboxMark


async def _nothing_to_renew() -> None:
    """Core NATS has no acknowledgement to renew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageContext:
    """Identity, origin and patience of one delivery."""

    handler: str
    """Stable id of the handler, e.g. `on_device_found`."""
    message_id: str
    """Unique for ever, the same in every redelivery."""
    subject: str
    correlation_id: str = ""
    causation_id: str = ""
    attempt: int = 1
    """1 on first delivery."""
    resource_version: int = 0
    """Revision of the document a fact was committed with; 0 when unknown."""
    epoch: str = ""
    deadline: float | None = None
    """Monotonic loop time after which nobody waits for the result."""
    headers: Mapping[str, str] = field(default_factory=dict)
    renew: Callable[[], Awaitable[None]] = _nothing_to_renew

    def mark(self, answer: Mapping[str, Any] | None = None) -> InboxMark:
        """The inbox mark to commit with the effects of this message, so that a repeat changes nothing."""
        from shared.store.documents import InboxMark

        return InboxMark(self.handler, self.message_id, answer)

    async def in_progress(self) -> None:
        """Ask for more time now; the router asks by itself every second while a handler runs."""
        await self.renew()


@dataclass(frozen=True, slots=True, kw_only=True)
class UserCommand:
    """A user's own command: a manifest (one YAML or JSON document, undecoded) and what the subject authorised."""

    verb: str
    """apply, create or delete."""
    principal: str
    namespace: str
    """Empty for cluster-wide kinds."""
    body: bytes = field(repr=False)
