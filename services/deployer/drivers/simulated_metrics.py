"""The simulated engine's /metrics, in the words of the engine that it plays.

Pure. Read next: simulated_engine.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

PREFIXES: Mapping[str, str] = {"vLLM": "vllm:", "Simulated": "vllm:", "SGLang": "sglang:", "LlamaCpp": "llamacpp:"}
_NAMES: Mapping[str, Mapping[str, str]] = {
    "sglang:": {
        "num_requests_running": "num_running_reqs",
        "num_requests_waiting": "num_queue_reqs",
        "kv_cache_usage_perc": "token_usage",
    },
    "llamacpp:": {
        "num_requests_running": "requests_processing",
        "num_requests_waiting": "requests_deferred",
        "generation_tokens_total": "tokens_predicted_total",
        "prefix_cache_hits_total": "prompt_tokens_cached_total",
    },
}


@dataclass(slots=True)
class Counts:
    """What one engine has done."""

    running: int = 0
    prompt_tokens: int = 0
    generated_tokens: int = 0
    finished: int = 0
    aborted: int = 0
    first_token_seconds: float = 0.0
    by_status: dict[int, int] = field(default_factory=dict)


def exposition(counts: Counts, *, engine: str, model: str, usage: float, queries: int, hits: int) -> bytes:
    """Prometheus text."""
    prefix = PREFIXES.get(engine, "vllm:")
    names = _NAMES.get(prefix, {})
    label = model.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    rows = (
        ("num_requests_running", "gauge", counts.running),
        ("num_requests_waiting", "gauge", 0),
        ("kv_cache_usage_perc", "gauge", round(usage, 6)),
        ("prefix_cache_queries_total", "counter", queries),
        ("prefix_cache_hits_total", "counter", hits),
        ("prompt_tokens_total", "counter", counts.prompt_tokens),
        ("generation_tokens_total", "counter", counts.generated_tokens),
        ("time_to_first_token_seconds_sum", "counter", round(counts.first_token_seconds, 6)),
        ("time_to_first_token_seconds_count", "counter", counts.finished + counts.aborted),
    )
    lines = []
    for name, kind, value in rows:
        shown = prefix + names.get(name, name)
        lines.append(f'# TYPE {shown} {kind}\n{shown}{{model_name="{label}"}} {value}\n')
    success = prefix + "request_success_total"
    ends = (("length", counts.finished), ("abort", counts.aborted))
    lines.append(f"# TYPE {success} counter\n")
    lines += [f'{success}{{model_name="{label}",finished_reason="{reason}"}} {value}\n' for reason, value in ends]
    return "".join(lines).encode()
