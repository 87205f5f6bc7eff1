"""SGLang. Played by the simulated engine on simulated nodes; as a real process it comes with the container runtimes.

Pure. Read next: engine_vllm.py.
"""

from __future__ import annotations

from services.deployer.domain.engines import HOST, MODEL_PATH, PORT, PYTHON, Engine, Launch


def argv(launch: Launch) -> list[str]:
    """`sglang.launch_server` on the delivered weights."""
    source = MODEL_PATH if launch.has_artifact else launch.model
    return [
        PYTHON, "-m", "sglang.launch_server", "--model-path", source,
        "--served-model-name", launch.model, "--host", HOST, "--port", PORT, *launch.extra_args,
    ]  # fmt: skip


ENGINE = Engine(
    name="SGLang",
    argv=argv,
    owned_flags=frozenset(
        {
            "--api-key", "--host", "--port", "--hicache-storage-backend", "--hicache-storage-backend-extra-config",
            "--disaggregation-mode", "--disaggregation-transfer-backend", "--disaggregation-bootstrap-port",
        }
    ),
    owned_env=frozenset({"SGLANG_HICACHE_MOONCAKE_CONFIG_PATH", "MOONCAKE_CONFIG_PATH", "MOONCAKE_MASTER"}),
    name_flag="--served-model-name",
    process=False,
)  # fmt: skip
