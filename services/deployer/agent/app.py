"""The agent of this host put together: the only file that constructs its runtime and its client.

Read next: pods.py.
"""

from __future__ import annotations

import socket
from typing import NoReturn

from services.deployer.agent.pods import PodAgent
from services.deployer.drivers.engine_http import HttpProber
from services.deployer.drivers.host import address_towards, machine_id, node_name
from services.deployer.drivers.process import ProcessRuntime
from services.deployer.ports import Runtime as PodRuntime
from services.deployer.settings import DeployerAgentSettings
from shared.service import Plan, Runtime
from shared.service import main as run_main
from shared.subjects import node_user

ROLE = "deployer-agent"
NOT_ALLOWED = "this host does not run processes for others: join it with --allow-process"


async def build(runtime: Runtime[DeployerAgentSettings]) -> Plan:
    """Connect and wire."""
    settings = runtime.settings
    node = settings.node or node_name(socket.gethostname())
    bus = await runtime.connect_bus(node_user(node))
    pods = await _pod_runtime(runtime)
    agent = PodAgent(
        node=node,
        bus=bus,
        runtime=pods,
        prober=HttpProber(),
        clock=runtime.clock,
        machine_id=machine_id(),
        data_dir=settings.data_dir,
    )
    if pods.name == "process" and not settings.allow_process:
        agent.refusal = NOT_ALLOWED
    return Plan(
        name=ROLE,
        bus=bus,
        loops={"pods": agent.run},
        on_stop=(agent.close,),
        checks={"desired": lambda: agent.answered},
    )


async def _pod_runtime(runtime: Runtime[DeployerAgentSettings]) -> PodRuntime:
    settings = runtime.settings
    if settings.runtime == "simulated":
        from services.deployer.drivers.simulated import SimulatedRuntime
        from services.deployer.drivers.simulated_server import SimulatedHost

        host = SimulatedHost()
        await host.start()
        return SimulatedRuntime(host, clock=runtime.clock, start_seconds=settings.engine_start_seconds)
    bound = settings.pod_host or address_towards(settings.nats_url)
    return ProcessRuntime(
        settings.data_dir / "pods",
        clock=runtime.clock,
        host=bound,
        address=settings.pod_address,
        log_limit=settings.pod_log_bytes,
    )


def main() -> NoReturn:
    """Run the agent."""
    run_main(ROLE, DeployerAgentSettings, build)
