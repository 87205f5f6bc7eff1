"""`gpubus events` (a tail of facts) and `gpubus dead-letters` (list, redrive), with the admin's bus credentials.

Must not consume anything: the tail is a core NATS subscription, no durable. Read next: gpubus/facts.py.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from gpubus.bus import admin_bus
from gpubus.facts import WIDTH, FactLine, read
from gpubus.refusal import Refusal
from gpubus.terminal import is_terminal, paint, table

if TYPE_CHECKING:
    from nats.aio.msg import Msg

_COLOURS = {
    "ready": "green",
    "available": "green",
    "admitted": "green",
    "failed": "red",
    "lost": "red",
    "held": "yellow",
    "degraded": "yellow",
}


def tail(subject: str, *, raw: bool, data_dir: str) -> None:
    """Print facts as they happen until interrupted; `subject` is `workload`, `workload.admitted` or a whole subject.

    Raises:
        Refusal: no such stack.
    """
    asyncio.run(_tail(subject, raw=raw, data_dir=data_dir))


async def _tail(subject: str, *, raw: bool, data_dir: str) -> None:
    async with admin_bus(data_dir) as bus:

        async def show(message: Msg) -> None:
            line = read(message.data)
            if raw or line is None:
                print(f"{message.subject} {message.data.decode(errors='replace')}", flush=True)
            else:
                print(coloured(line), flush=True)

        await bus.listen(filter_of(subject), show)
        await bus.lost.wait()
        raise Refusal("The connection to NATS ended for good: the credentials are no longer valid.")


def filter_of(word: str) -> str:
    """The subject that a user's short form means."""
    from shared import subjects

    if not word:
        return subjects.of_class("evt")
    if word.startswith(f"{subjects.ROOT}."):
        return word
    return f"{subjects.of_class('evt').removesuffix('.>')}.{word.strip('.')}.>"


def coloured(line: FactLine) -> str:
    """A fact on a terminal."""
    if not is_terminal():
        return line.plain()
    colour = _COLOURS.get(line.what.rpartition(".")[2], "cyan")
    return f"{paint(line.time, 'dim')}  {paint(f'{line.what:<{WIDTH}}', colour)} {line.about:<40} {paint(line.text, 'dim')}".rstrip()


def list_dead_letters(service: str, data_dir: str) -> None:
    """Print every dead letter, oldest first.

    Raises:
        Refusal: no such stack, or JetStream does not answer.
    """
    asyncio.run(_list(service, data_dir))


async def _list(service: str, data_dir: str) -> None:
    from shared.bus.dead_letter import letters
    from shared.errors import GpubusError

    async with admin_bus(data_dir) as bus:
        try:
            found = await letters(bus.connection, service)
        except GpubusError as error:
            raise Refusal(f"The dead letters cannot be read: {error.message}.") from error
    if not found:
        print("no dead letters")
        return
    head = ("NUMBER", "HANDLER", "CODE", "ATTEMPTS", "GIVEN UP", "REDRIVEN", "SUBJECT", "REASON")
    rows = [
        (str(one.sequence), f"{one.service}/{one.handler}", one.code, str(one.attempts), one.last_time,
         str(len(one.redriven)), one.subject, one.reason[:100])
        for one in found
    ]  # fmt: skip
    print(table(head, rows))


def redrive(numbers: list[int], *, everything: bool, data_dir: str) -> int:
    """Give dead letters to their handlers again; 1 when one could not be.

    Raises:
        Refusal: none was named.
    """
    if not numbers and not everything:
        raise Refusal("Say which dead letters: their numbers as `gpubus dead-letters list` shows them, or --all.")
    return asyncio.run(_redrive(numbers, everything=everything, data_dir=data_dir))


async def _redrive(numbers: list[int], *, everything: bool, data_dir: str) -> int:
    from shared.bus.dead_letter import letters
    from shared.bus.dead_letter import redrive as again
    from shared.clock import SystemClock, unix_ms
    from shared.errors import GpubusError
    from shared.ids import new_id

    failed = 0
    async with admin_bus(data_dir) as bus:
        chosen = [one.sequence for one in await letters(bus.connection) if not one.redriven] if everything else numbers
        for number in chosen:
            try:
                letter = await again(bus.connection, number, new_id(unix_ms(SystemClock().now())))
            except GpubusError as error:
                failed = 1
                print(f"{number}: {error.message}")
                continue
            print(f"{number}: given to {letter.service}/{letter.handler} again")
    return failed
