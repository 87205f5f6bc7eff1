"""Reads the stub's cards a few times, changing its mood in between; prints what was seen. Run by test_nvml.py.

Arguments: one JSON object of environment changes per pass.
"""

import asyncio
import ctypes
import json
import sys

from services.discovery.drivers.nvml import NvmlProbe
from shared.clock import SystemClock
from shared.errors import Unavailable

libc = ctypes.CDLL(None)


async def main():
    probe = NvmlProbe(SystemClock())
    for mood in map(json.loads, sys.argv[1:]):
        for name, value in mood.items():
            libc.setenv(name.encode(), str(value).encode(), 1)
        try:
            groups = [group.model_dump(mode="json") for group in await probe.read()]
            print(json.dumps({"groups": groups, "imported": "pynvml" in sys.modules}))
        except Unavailable as error:
            print(json.dumps({"unavailable": str(error)}))
    await probe.close()


asyncio.run(main())
