"""The agent of this host put together: the only file that constructs its vault and its client.

Read next: models.py.
"""

from __future__ import annotations

import socket
from typing import NoReturn

from services.modelstore.agent.models import ModelAgent
from services.modelstore.drivers.disk import DiskVault
from services.modelstore.drivers.simulated import SimulatedVault
from services.modelstore.ports import Vault
from services.modelstore.settings import ModelstoreAgentSettings
from shared.service import Plan, Runtime
from shared.service import main as run_main
from shared.subjects import node_user

ROLE = "modelstore-agent"


async def build(runtime: Runtime[ModelstoreAgentSettings]) -> Plan:
    """Connect and wire."""
    settings = runtime.settings
    node = settings.node or socket.gethostname().lower()
    bus = await runtime.connect_bus(node_user(node))
    agent = ModelAgent(node=node, bus=bus, vault=_vault(settings, node), clock=runtime.clock)
    return Plan(name=ROLE, bus=bus, loops={"models": agent.run}, checks={"desired": lambda: agent.answered})


def _vault(settings: ModelstoreAgentSettings, node: str) -> Vault:
    if settings.runtime == "simulated":
        return SimulatedVault(node)
    return DiskVault(
        settings.data_dir.absolute() / "models",
        concurrency=settings.download_concurrency,
        keep_free=settings.keep_free_bytes,
        stall=settings.stall_seconds,
    )


def main() -> NoReturn:
    """Run the agent."""
    run_main(ROLE, ModelstoreAgentSettings, build)
