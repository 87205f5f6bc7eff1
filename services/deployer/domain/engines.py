"""The registry of engines: what is data about each, in one shape. One adapter file per engine adds its argument line.

Owned flags are what the platform says itself; who writes them in `extraArgs` is refused. Pure. Read next: engine_llamacpp.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

MODEL_PATH, PORT, HOST, PYTHON = "$(GPUBUS_MODEL_PATH)", "$(GPUBUS_PORT)", "$(GPUBUS_HOST)", "$(GPUBUS_PYTHON)"
"""What the node's agent fills in, as Kubernetes fills in `$(VAR)`."""

WEIGHT_FLAGS = frozenset(
    {
        "--model",
        "--model-path",
        "--revision",
        "--tokenizer-revision",
        "--code-revision",
        "--download-dir",
        "--model-tag",
    }
)
"""They name weights, which the artifact names already."""
WEIGHT_ENV = ("HF_", "HUGGING_FACE_", "MODELSCOPE_")
"""Beginnings of variables that do the same."""
RESERVED_ENV = ("GPUSTACK_", "GPUBUS_")
"""Beginnings of variables that the platform sets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """What an adapter knows when it writes the argument line."""

    model: str
    """The served name."""
    weights: str = ""
    """File of the manifest to load; empty: the whole directory, or no weights at all."""
    has_artifact: bool = False
    cpu_milli: int = 0
    cards: int = 0
    extra_args: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """One inference engine."""

    name: str
    argv: Callable[[Launch], list[str]] | None
    """None: the user's own command is the only one."""
    owned_flags: frozenset[str] = frozenset()
    owned_env: frozenset[str] = frozenset()
    name_flag: str = ""
    """The flag that sets the served name: allowed when it repeats spec.model.name."""
    probe_path: str = "/health"
    one_gguf: bool = False
    """Needs weights with exactly one GGUF model."""
    process: bool = True
    """Runs as a plain process; False: only simulated nodes play it so far (a command of one's own runs anywhere)."""


def registry() -> Mapping[str, Engine]:
    """All engines by name."""
    from services.deployer.domain import engine_custom, engine_llamacpp, engine_sglang, engine_simulated, engine_vllm

    adapters = (engine_vllm, engine_sglang, engine_llamacpp, engine_custom, engine_simulated)
    return {adapter.ENGINE.name: adapter.ENGINE for adapter in adapters}
