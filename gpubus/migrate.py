"""`gpubus migrate`: declare streams and durables; the supervisor runs it once NATS answers, and again when it restarted.

Must not import the services. Read next: shared/bus/streams.py.
"""

from __future__ import annotations

import asyncio

from gpubus.refusal import Refusal
from shared.errors import GpubusError


def run() -> None:
    """Migrate the server named by GPUBUS_NATS_URL and GPUBUS_NATS_SEED_FILE.

    Raises:
        Refusal: it does not answer, or refuses a change.
    """
    from shared.bus.streams import migrate
    from shared.settings import BaseServiceSettings

    settings = BaseServiceSettings.load()
    try:
        done = asyncio.run(migrate(settings.nats_url, settings.nats_seed_file))
    except GpubusError as error:
        raise Refusal(f"The streams could not be declared: {error.message}.") from error
    print(f"created {len(done.created)}, updated {len(done.updated)}, removed {len(done.removed)} streams and durables")
    for orphan in done.orphans:
        print(f"left alone, nothing of ours uses it: {orphan}")
