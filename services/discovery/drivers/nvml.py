"""NVIDIA cards through NVML: absent without noise, every call in one thread, one bad card never the others.

Owns the driver's life (load, init, events). The library is looked for once a minute at most, and pynvml is imported
only where it exists. Read next: nvml_card.py, which reads one card.
"""

from __future__ import annotations

import asyncio
import ctypes
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from services.discovery.drivers.nvml_card import CardReader, Versions
from shared.clock import Clock
from shared.errors import Unavailable
from shared.resources.device import AcceleratorGroup

T = TypeVar("T")

CALL_SECONDS = 10.0
"""A pass that takes longer counts as failed; its thread is left alone until it ends."""
_LOOK_AGAIN_SECONDS = 60.0
_LIBRARY = "libnvidia-ml.so.1"


class NvmlProbe:
    """Port AcceleratorProbe for NVIDIA."""

    source = "nvidia"

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._thread: ThreadPoolExecutor | None = None
        self._running: Future[Any] | None = None
        self._reader: CardReader | None = None
        self._looked: float | None = None

    async def read(self) -> tuple[AcceleratorGroup, ...]:
        """See port."""
        if self._reader is None and not await self._appeared():
            return ()
        reader = self._reader
        assert reader is not None, "the driver has just been loaded"
        return await self._in_thread(reader.read)

    async def close(self) -> None:
        """See port."""
        if self._reader is not None and not self._hangs():
            await self._in_thread(self._reader.shut)
        if self._thread is not None:
            self._thread.shutdown(wait=False, cancel_futures=True)

    async def _appeared(self) -> bool:
        now = self._clock.monotonic()
        if self._looked is not None and now - self._looked < _LOOK_AGAIN_SECONDS:
            return False
        self._looked = now
        if not _library_exists():
            return False
        self._reader = await self._in_thread(lambda: load(self._clock))
        return self._reader is not None

    def _hangs(self) -> bool:
        return self._running is not None and not self._running.done()

    async def _in_thread(self, call: Callable[[], T]) -> T:
        if self._hangs():
            raise Unavailable("an earlier NVML call has not returned")
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="nvml")
        running: Future[T] = self._thread.submit(call)
        self._running = running
        try:
            return await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(running)), CALL_SECONDS)
        except TimeoutError as error:
            raise Unavailable(f"NVML did not answer within {CALL_SECONDS:g} s") from error


def load(clock: Clock) -> CardReader | None:
    """Initialise NVML; None when this host has no NVIDIA driver. Blocks: call it in a thread."""
    import pynvml

    try:
        pynvml.nvmlInit()
        return CardReader(pynvml, Versions.read(pynvml), clock)
    except (pynvml.NVMLError_LibraryNotFound, pynvml.NVMLError_DriverNotLoaded, pynvml.NVMLError_NoPermission):
        return None
    except pynvml.NVMLError as error:
        raise Unavailable(f"NVML does not start: {error}") from error


def _library_exists() -> bool:
    """Whether the dynamic linker finds the library: tenths of a millisecond, and pynvml stays unimported."""
    try:
        ctypes.CDLL(_LIBRARY)
    except OSError:
        return False
    return True
