"""What a process imports is a promise about its memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from shared.bus.lean import hidden

ROOT = Path(__file__).parents[3]


def loaded(*modules: str) -> set[str]:
    """Top-level packages in a new process after importing modules."""
    code = f"import {', '.join(modules)}, sys; print(' '.join({{m.partition('.')[0] for m, v in sys.modules.items() if v}}))"
    out = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(out.stdout.split())


def test_agents_load_neither_faststream_nor_redis_nor_web_libraries():
    found = loaded("shared.service", "shared.bus.client")

    assert not found & {
        "faststream",
        "redis",
        "aiohttp",
        "uvicorn",
        "rich",
        "typer",
        "yaml",
        "httpx",
        "kubernetes",
        "structlog",
    }


def test_controllers_load_no_web_libraries_with_faststream():
    found = loaded("shared.bus.broker")

    assert "faststream" in found
    assert not found & {"aiohttp", "uvicorn", "click", "typer", "rich", "watchfiles", "starlette", "email_validator"}


def test_a_hidden_package_looks_absent_and_comes_back():
    with hidden("wave"), pytest.raises(ImportError):
        import wave

    import wave

    assert wave.__name__ == "wave"


def test_a_package_that_is_loaded_already_stays():
    import json

    with hidden("json"):
        import json as again

    assert again is json
