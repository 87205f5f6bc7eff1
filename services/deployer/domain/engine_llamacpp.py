"""llama.cpp: the embedded server (PyPI xllamacpp) or any `llama-server`, through our launcher.

Pure. Read next: ../drivers/llamacpp_server.py.
"""

from __future__ import annotations

from services.deployer.domain.engines import HOST, MODEL_PATH, PORT, PYTHON, Engine, Launch


def argv(launch: Launch) -> list[str]:
    """One thread is left to everybody else: with all cores taken, decoding fell to a fifth beside any neighbour."""
    threads = max(1, launch.cpu_milli // 1000 - 1)
    return [
        PYTHON, "-m", "services.deployer.drivers.llamacpp_server",
        "--model", f"{MODEL_PATH}/{launch.weights}",
        "--alias", launch.model,
        "--host", HOST,
        "--port", PORT,
        "--threads", str(threads),
        *launch.extra_args,
    ]  # fmt: skip


ENGINE = Engine(
    name="LlamaCpp",
    argv=argv,
    owned_flags=frozenset(
        {
            "--model", "-m", "--alias", "-a", "--host", "--port", "--api-key", "--api-key-file", "--hf-repo", "-hf",
            "-hfr", "--hf-file", "-hff", "--hf-token", "-hft", "--model-url", "-mu", "--ssl-key-file", "--ssl-cert-file",
        }
    ),
    name_flag="--alias",
    one_gguf=True,
)  # fmt: skip
