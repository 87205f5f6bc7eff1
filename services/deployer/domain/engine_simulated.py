"""The simulated engine: no model, a cost model. A child process on real nodes, a path of one listener on simulated ones.

Pure. Read next: ../drivers/simulated_server.py.
"""

from __future__ import annotations

from services.deployer.domain.engines import HOST, PORT, PYTHON, Engine, Launch


def argv(launch: Launch) -> list[str]:
    """The stand-alone server."""
    return [
        PYTHON, "-m", "services.deployer.drivers.simulated_server",
        "--model", launch.model, "--host", HOST, "--port", PORT, *launch.extra_args,
    ]  # fmt: skip


ENGINE = Engine(
    name="Simulated",
    argv=argv,
    owned_flags=frozenset({"--model", "--host", "--port", "--api-key", "--served-model-name"}),
    name_flag="--served-model-name",
)
