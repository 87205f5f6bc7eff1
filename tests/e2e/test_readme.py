"""The commands of README.md, as a reader pastes them: only the port is a free one, and what follows for ever is ended."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(180)

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent


def blocks() -> list[list[str]]:
    """The shell blocks of the section Try."""
    section = (ROOT / "README.md").read_text().partition("\n## Try\n")[2].partition("\n## ")[0]
    return [block.strip().splitlines() for block in re.findall(r"```\n(.*?)```", section, re.DOTALL)]


@pytest.fixture
def shell(tmp_path: Path):
    """Runs lines in one bash as a user whose home is empty; the stack in it is stopped at the end."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("GPUBUS_", "KUBE", "OPENAI_"))}
    env = {**kept, "HOME": str(tmp_path), "PATH": f"{BIN}:{kept['PATH']}", "PYTHONPATH": str(ROOT)}

    def run(lines: list[str]) -> str:
        script = "\n".join(["set -eo pipefail", *(_pasted(line) for line in lines)])
        done = subprocess.run(["bash", "-c", script], cwd=ROOT, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    yield run
    run([".venv/bin/gpubus down || true"])


def _pasted(line: str) -> str:
    text = line.partition("  #")[0].strip().replace(".venv/bin/gpubus", f"{sys.executable} -m gpubus.main")
    if " up " in text:
        return f"{text} --port 0"
    endless = text.endswith((" -w", " events"))
    return f"timeout 3 {text} || [ $? -eq 124 ]" if endless else text


def test_what_the_readme_says_to_try_works(shell):
    start, use = blocks()
    assert start[0].split()[:2] == [".venv/bin/gpubus", "up"]
    assert start[-1].split() == [".venv/bin/gpubus", "down"]

    seen = shell(start[:-1])
    assert "modeldeployment.worker.gpustack.ai/smollm2 created" in seen
    assert re.search(r"^smollm2 ", seen, re.MULTILINE), "the watch shows it"

    clients = shell(use)
    assert "instancetype.worker.gpustack.ai/gpustack--generic-linux-amd64" in clients or "gpustack--generic" in clients
    assert '"object":"list"' in clients.replace(" ", "")

    shell(start[-1:])
