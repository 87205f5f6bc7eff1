"""vLLM. Played by the simulated engine on simulated nodes; as a real process it comes with the container runtimes.

Pure. Read next: engine_sglang.py.
"""

from __future__ import annotations

from services.deployer.domain.engines import HOST, MODEL_PATH, PORT, Engine, Launch


def argv(launch: Launch) -> list[str]:
    """`vllm serve` on the delivered weights."""
    source = MODEL_PATH if launch.has_artifact else launch.model
    return [
        "vllm",
        "serve",
        source,
        "--served-model-name",
        launch.model,
        "--host",
        HOST,
        "--port",
        PORT,
        *launch.extra_args,
    ]


ENGINE = Engine(
    name="vLLM",
    argv=argv,
    owned_flags=frozenset({"--api-key", "--host", "--port", "--kv-transfer-config", "--kv-events-config"}),
    owned_env=frozenset({"MOONCAKE_CONFIG_PATH", "VLLM_MOONCAKE_BOOTSTRAP_PORT", "VLLM_API_KEY"}),
    name_flag="--served-model-name",
    process=False,
)
