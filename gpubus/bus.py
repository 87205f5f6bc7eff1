"""The command line's place on the bus: the admin's connection to a running stack.

Must not publish facts. Read next: gpubus/events.py.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from gpubus.datadir import resolve
from gpubus.environment import variable
from gpubus.refusal import Refusal
from gpubus.stack.credentials import ADMIN

if TYPE_CHECKING:
    from shared.bus.client import BusClient


@asynccontextmanager
async def admin_bus(data_dir: str = "") -> AsyncIterator[BusClient]:
    """Connect with NATS_URL and NATS_CREDS of the environment, unless `--data-dir` names a stack; else of its `env`.

    Raises:
        Refusal: no stack, or its NATS does not answer.
    """
    from shared.bus.client import BusClient
    from shared.errors import GpubusError

    url, seed = place(data_dir)
    try:
        bus = await BusClient.connect(url=url, user=ADMIN, seed_file=seed or None, name="gpubus", timeout=5.0)
    except GpubusError as error:
        raise Refusal(f"{error.message}; is the stack running? `gpubus status` says.") from error
    try:
        yield bus
    finally:
        await bus.close()


def place(data_dir: str) -> tuple[str, str]:
    """URL and seed file.

    Raises:
        Refusal: no stack was ever started there.
    """
    if not data_dir and variable("NATS_URL"):
        return variable("NATS_URL"), variable("NATS_CREDS")
    where = resolve(data_dir)
    exports = where.exports()
    if "NATS_URL" not in exports:
        raise Refusal(
            f"No stack was ever started in {where.root}: run `gpubus up`, or set NATS_URL and NATS_CREDS, or --data-dir."
        )
    return exports["NATS_URL"], exports.get("NATS_CREDS", "")
