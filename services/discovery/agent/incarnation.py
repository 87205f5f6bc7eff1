"""One agent start's claim to a node: machine, boot and a nonce, and the proof that earlier starts are gone.

The proof is a lock file in the data dir: whoever holds it may name the incarnations written there before, because
their process has let go of the lock, which the kernel does at its death. Read next: node.py.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
from dataclasses import dataclass
from pathlib import Path

from shared.errors import FailedPrecondition, Unavailable
from shared.ids import derived_id

_REMEMBERED = 8
"""Starts whose claims may have been accepted without this host knowing."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What an agent start says of itself."""

    machine_id: str
    boot_id: str
    incarnation: str
    previous: tuple[str, ...] = ()

    def of_simulated(self, node: str, machine_id: str, boot_id: str) -> Identity:
        """The identity of one of a fleet's nodes: the fleet's own starts, told apart by name."""
        return Identity(
            machine_id,
            boot_id,
            derived_id(self.incarnation, node),
            tuple(derived_id(earlier, node) for earlier in self.previous),
        )


class Slot:
    """The lock of one node's (or fleet's) agent on this host; held until the process ends or `release`."""

    def __init__(self, directory: Path, name: str) -> None:
        """Take it.

        Raises:
            FailedPrecondition: another process holds it.
            Unavailable: the data dir cannot be written.
        """
        self._path = directory / f"{name}.incarnations"
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(directory / f"{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise Unavailable(f"the data dir {directory} cannot be written: {error.strerror}") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._lock)
            sentence = f"another discovery agent of {name} runs on this host with data dir {directory}"
            raise FailedPrecondition(sentence) from error

    def begin(self, machine_id: str, boot_id: str) -> Identity:
        """A new incarnation, written down before anybody hears of it."""
        previous = self._earlier()
        incarnation = f"{machine_id[:8]}-{boot_id[:8]}-{secrets.token_hex(8)}"
        kept = [*previous, incarnation][-_REMEMBERED:]
        temporary = self._path.with_suffix(".new")
        try:
            temporary.write_text(json.dumps(kept))
            temporary.replace(self._path)
        except OSError as error:
            raise Unavailable(f"{self._path} cannot be written: {error.strerror}") from error
        return Identity(machine_id, boot_id, incarnation, tuple(previous))

    def release(self) -> None:
        """Let go of the lock."""
        os.close(self._lock)

    def _earlier(self) -> list[str]:
        try:
            body = json.loads(self._path.read_text())
        except (OSError, ValueError):
            return []
        return [entry for entry in body if isinstance(entry, str)] if isinstance(body, list) else []
