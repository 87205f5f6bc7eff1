"""Which method handles which message: decorators, and the Router that collects a service's handlers.

Owns how a message class becomes a subject, a stream and a durable; handlers cannot get it wrong. Pure: connects nothing.
Read next: shared/bus/broker.py, which runs a router.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from shared import subjects
from shared.bus.context import MessageContext, UserCommand
from shared.bus.settle import MAX_ATTEMPTS
from shared.commands.objects import WriteObject
from shared.messages.base import Command, Fact, Message, Query, Report, Telemetry
from shared.messages.catalog import owner_of

HANDLER_SECONDS = 30.0
REDRIVE = "redrive"
"""Stable id of the durable that brings dead letters back, one a service."""
_MARK = "__gpubus_handles__"

Method = TypeVar("Method", bound=Callable[..., Awaitable[Any]])
Call = Callable[[Any, MessageContext], Awaitable[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """One decorated method."""

    message: Any
    """The message class; UserCommand for the users' own commands."""
    handler: str
    """Stable id: the method's name when it was first released, as in the catalogue."""
    workers: int = 1
    """Messages this process handles at once; more than one gives up order within the process."""
    attempts: int = MAX_ATTEMPTS
    timeout: float = HANDLER_SECONDS
    """Seconds after which one attempt counts as failed."""

    @property
    def stored(self) -> bool:
        """JetStream keeps it and a durable delivers it."""
        return self.message is UserCommand or issubclass(self.message, (Fact, Report, Command))

    @property
    def answers(self) -> bool:
        """A refusal is answered, not dead-lettered."""
        return self.message is UserCommand or issubclass(self.message, (Command, Query, WriteObject))

    @property
    def stream(self) -> str:
        """The stream that stores it."""
        if self.message is UserCommand or issubclass(self.message, Command):
            return subjects.STREAM_COMMANDS
        return (
            subjects.STREAM_REPORTS
            if issubclass(self.message, Report)
            else subjects.owner_stream(owner_of(self.message))
        )


@dataclass(frozen=True, slots=True)
class Bound:
    """A method with its object."""

    spec: Spec
    call: Call


def on(
    fact: type[Fact], *, workers: int = 1, attempts: int = MAX_ATTEMPTS, timeout: float = HANDLER_SECONDS
) -> Callable[[Method], Method]:
    """Handle a fact: durable, shared by the service's copies."""
    return _marks(fact, Fact, workers=workers, attempts=attempts, timeout=timeout)


def command(
    cls: type[Command], *, workers: int = 1, attempts: int = MAX_ATTEMPTS, timeout: float = HANDLER_SECONDS
) -> Callable[[Method], Method]:
    """Obey a command: durable; a Permanent error is a refusal, answered to whoever waits."""
    return _marks(cls, Command, workers=workers, attempts=attempts, timeout=timeout)


def report(
    cls: type[Report], *, workers: int = 1, attempts: int = MAX_ATTEMPTS, timeout: float = HANDLER_SECONDS
) -> Callable[[Method], Method]:
    """Take an agent's report: durable."""
    return _marks(cls, Report, workers=workers, attempts=attempts, timeout=timeout)


def query(cls: type[Query]) -> Callable[[Method], Method]:
    """Answer a question; one copy of the service gets each."""
    return _marks(cls, Query)


def telemetry(cls: type[Telemetry]) -> Callable[[Method], Method]:
    """Take samples; every copy gets all of them, lossy."""
    return _marks(cls, Telemetry)


def request(cls: type[WriteObject]) -> Callable[[Method], Method]:
    """Answer writes of the service's own kinds; one copy gets each."""
    return _marks(cls, WriteObject)


def user_command() -> Callable[[Method], Method]:
    """Obey users' own commands (UserCommand), both the answered and the stored ones; only the gateway does."""
    return _marks(UserCommand, UserCommand)


def specs(handlers: Any) -> Iterator[Spec]:
    """What a class (or object) of handlers handles."""
    for _, member in inspect.getmembers(handlers, callable):
        yield from getattr(member, _MARK, ())


class Router:
    """All handlers of one service."""

    def __init__(self, service: str) -> None:
        self.service = service
        self.bound: list[Bound] = []

    def include(self, handlers: object) -> None:
        """Add every decorated method of an object.

        Raises:
            ValueError: two methods have the same stable id.
        """
        for _, member in inspect.getmembers(handlers, callable):
            for spec in getattr(member, _MARK, ()):
                if any(known.spec.handler == spec.handler for known in self.bound):
                    raise ValueError(f"{self.service} has two handlers called {spec.handler}")
                self.bound.append(Bound(spec, cast("Call", member)))

    def consumers(self) -> frozenset[tuple[type[Message], str]]:
        """(message class, stable id), to compare with the catalogue."""
        return frozenset(
            (bound.spec.message, bound.spec.handler) for bound in self.bound if bound.spec.message is not UserCommand
        )

    def durables(self) -> dict[str, Bound]:
        """Durable name -> handler of everything stored."""
        return {subjects.durable(self.service, b.spec.handler): b for b in self.bound if b.spec.stored}


def _marks(
    message: type[Any],
    base: type[Any],
    *,
    workers: int = 1,
    attempts: int = MAX_ATTEMPTS,
    timeout: float = HANDLER_SECONDS,
) -> Callable[[Method], Method]:
    if not issubclass(message, base):
        raise TypeError(f"{message.__name__} is not a {base.__name__}")

    def mark(method: Method) -> Method:
        spec = Spec(message=message, handler=method.__name__, workers=workers, attempts=attempts, timeout=timeout)
        setattr(method, _MARK, (*getattr(method, _MARK, ()), spec))
        return method

    return mark
