"""The agent of this host put together: the only file that constructs its drivers and its client.

Read next: node.py.
"""

from __future__ import annotations

import socket
from typing import NoReturn

from services.discovery.agent.incarnation import Slot
from services.discovery.agent.node import NodeAgent
from services.discovery.domain.identity import node_name
from services.discovery.drivers.host import LinuxHost
from services.discovery.drivers.nvml import NvmlProbe
from services.discovery.settings import DiscoveryAgentSettings
from shared.service import Plan, Runtime
from shared.service import main as run_main
from shared.subjects import node_user

ROLE = "discovery-agent"
VERSION = "0.1.0"


async def build(runtime: Runtime[DiscoveryAgentSettings]) -> Plan:
    """Take the node's slot on this host, connect and wire."""
    settings, clock = runtime.settings, runtime.clock
    node = settings.node or node_name(socket.gethostname())
    host = LinuxHost(nats_url=settings.nats_url, agent_version=VERSION)
    slot = Slot(settings.data_dir / "discovery", node)
    bus = await runtime.connect_bus(node_user(node))
    nvidia = NvmlProbe(clock)
    agent = NodeAgent(
        node=node,
        identity=slot.begin(host.machine_id(), host.boot_id()),
        host=host,
        probes=[nvidia],
        runtimes=[settings.runtime],
        bus=bus,
        clock=clock,
    )
    agent.listen()
    return Plan(
        name=ROLE,
        bus=bus,
        loops={
            "look": lambda: agent.keep_looking(settings.look_seconds),
            "place": agent.keep_place,
            "beat": agent.keep_beating,
        },
        on_stop=(nvidia.close,),
        checks={"claimed": lambda: agent.speaks},
    )


def main() -> NoReturn:
    """Run the agent."""
    run_main(ROLE, DiscoveryAgentSettings, build)
