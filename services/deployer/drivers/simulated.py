"""The simulated runtime: Pods of made-up nodes, played in this process behind one shared listener.

Any engine is played by the simulated one in its dialect; a command that serves nothing (`sleep 5`, `true`, `false`)
is played by a timer. Nothing survives the process: its nodes' Pods are simply started again.
Read next: simulated_server.py.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from services.deployer.domain.running import Ended, Launch, LogPiece, Observation, Place
from services.deployer.drivers.simulated_cost import BlocksChanged
from services.deployer.drivers.simulated_engine import SimulatedEngine
from services.deployer.drivers.simulated_server import SimulatedHost, arguments, cost_of
from shared.clock import Clock
from shared.errors import FailedPrecondition, NotFound

BlocksOf = Callable[[str, str, int], BlocksChanged]
"""(replica uid, model, block size) -> where its cache's changes go."""


@dataclass(slots=True)
class _Played:
    """One start."""

    launch: Launch
    started_unix: int
    engine: SimulatedEngine | None = None
    timers: list[asyncio.TimerHandle] = field(default_factory=list)
    ended: Ended | None = None
    lines: list[str] = field(default_factory=list)


class SimulatedRuntime:
    """The Pods of one simulated node."""

    name = "simulated"

    def __init__(
        self,
        host: SimulatedHost,
        *,
        clock: Clock,
        start_seconds: float = 0.0,
        address: str = "127.0.0.1",
        blocks: BlocksOf | None = None,
    ) -> None:
        """`start_seconds` is what every engine takes to become ready; `blocks` is told of cached blocks."""
        self._host = host
        self._clock = clock
        self._start_seconds = start_seconds
        self._address = address
        self._blocks = blocks
        self._changed: Callable[[str], None] = lambda _uid: None
        self._played: dict[str, _Played] = {}

    def on_change(self, callback: Callable[[str], None]) -> None:
        """See the port."""
        self._changed = callback

    def adopt(self) -> Mapping[str, Mapping[str, Any]]:
        """Nothing outlives the process."""
        return {}

    async def place(self, uid: str, fixed_port: int | None) -> Place:  # noqa: ARG002 - all share one port
        """See the port."""
        return Place(
            host=self._address,
            address=self._address,
            port=self._host.port,
            path=f"/r/{uid}",
            token=secrets.token_hex(16),
        )

    async def start(self, launch: Launch) -> None:
        """See the port."""
        if self._running(launch.uid):
            raise FailedPrecondition("something of this Pod still runs here")
        played = _Played(launch, int(self._clock.now().timestamp()))
        self._played[launch.uid] = played
        played.lines.append(f"simulated: {' '.join(launch.argv)}")
        if launch.engine:
            self._play_engine(launch, played)
        else:
            self._play_command(launch, played)

    async def stop(self, uid: str, grace_seconds: float) -> None:  # noqa: ARG002 - it ends at once
        """See the port."""
        if self._running(uid):
            self._end(uid, self._played[uid], Ended(exit_code=143, signal=15))

    async def observe(self, uid: str) -> Observation:
        """See the port."""
        played = self._played.get(uid)
        if played is None:
            return Observation()
        launch = played.launch
        if played.ended is not None:
            return Observation(run=launch.run, started_unix=played.started_unix, ended=played.ended)
        ready = played.engine.ready if played.engine is not None else True
        return Observation(
            running=True, run=launch.run, started_unix=played.started_unix, place=launch.place, ready=ready
        )

    async def record(self, uid: str, record: Mapping[str, Any]) -> None:
        """Nothing outlives the process."""

    async def read_log(self, uid: str, *, offset: int, tail_lines: int, max_bytes: int, previous: bool) -> LogPiece:
        """See the port."""
        played = self._played.get(uid)
        if played is None or previous:
            raise NotFound("there is no such log on this node")
        lines = played.lines[-tail_lines:] if offset < 0 else played.lines
        data = "".join(f"{line}\n" for line in lines).encode()
        piece = data[-max_bytes:] if offset < 0 else data[offset : offset + max_bytes]
        end = len("".join(f"{line}\n" for line in played.lines).encode()) if offset < 0 else offset + len(piece)
        return LogPiece(text=piece.decode(errors="replace"), next_offset=end, ended=played.ended is not None)

    async def forget(self, uid: str) -> None:
        """See the port."""
        if not self._running(uid):
            self._played.pop(uid, None)

    def close(self) -> None:
        """End everything."""
        for uid in [uid for uid in self._played if self._running(uid)]:
            self._end(uid, self._played[uid], Ended(exit_code=143, signal=15))

    def _running(self, uid: str) -> bool:
        played = self._played.get(uid)
        return played is not None and played.ended is None

    def _play_engine(self, launch: Launch, played: _Played) -> None:
        options = arguments(launch.argv)
        cost = cost_of(options, self._start_seconds)
        blocks = self._blocks(launch.uid, launch.served_model, cost.block_size) if self._blocks is not None else None
        played.engine = engine = SimulatedEngine(
            launch.served_model, engine=launch.engine, cost=cost, token=launch.place.token, blocks=blocks
        )
        self._host.mount(launch.uid, engine)
        if cost.start_seconds:
            self._later(played, cost.start_seconds, lambda: self._ready(launch.uid, played))
        else:
            engine.ready = True
        if options.exit_after:
            code = options.exit_code
            self._later(played, options.exit_after, lambda: self._end(launch.uid, played, _ended(code, played.lines)))

    def _play_command(self, launch: Launch, played: _Played) -> None:
        program = PurePosixPath(launch.argv[0]).name if launch.argv else ""
        if program == "sleep" and len(launch.argv) > 1 and launch.argv[1].replace(".", "", 1).isdigit():
            ended = _ended(0, played.lines)
            self._later(played, float(launch.argv[1]), lambda: self._end(launch.uid, played, ended))
        elif program in {"true", "false"}:
            self._end(launch.uid, played, _ended(int(program == "false"), played.lines))

    def _ready(self, uid: str, played: _Played) -> None:
        if played.engine is not None and played.ended is None:
            played.engine.ready = True
            played.lines.append("simulated: ready")
            self._changed(uid)

    def _end(self, uid: str, played: _Played, ended: Ended) -> None:
        for timer in played.timers:
            timer.cancel()
        played.ended = ended
        if played.engine is not None:
            played.engine.ready = False
            self._host.unmount(uid)
        self._changed(uid)

    def _later(self, played: _Played, seconds: float, call: Callable[[], None]) -> None:
        played.timers.append(asyncio.get_running_loop().call_later(seconds, call))


def _ended(code: int, lines: list[str]) -> Ended:
    return Ended(exit_code=code, lines=tuple(lines[-1:]))
