"""A whole stack for a story: `gpubus up` in a data dir of its own, and the clients people use."""

import json
import os
import shlex
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

BIN = Path(sys.executable).parent


class Stack:
    """One `gpubus up --detach` with everything on free ports."""

    def __init__(self, data_dir: Path, *extra: str, env: dict[str, str] | None = None) -> None:
        self.dir = data_dir
        self.extra = extra
        mine = {name: value for name, value in os.environ.items() if not name.startswith(("GPUBUS_", "NATS_"))}
        self.env = {**mine, **(env or {}), "GPUBUS_DATA_DIR": str(data_dir), "NO_COLOR": "1", "COLUMNS": "160"}

    def gpubus(
        self, *args: str, check: bool = True, text: str | None = None, timeout: float = 90
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "gpubus.main", *args],
            env=self.env,
            input=text,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        if check and done.returncode:
            raise AssertionError(
                f"gpubus {' '.join(args)} exited {done.returncode}\n{done.stdout}\n{done.stderr}\n{self.tails()}"
            )
        return done

    def up(self) -> "Stack":
        self.gpubus("up", "--detach", "--data-dir", str(self.dir), "--port", "0", *self.extra)
        return self

    def down(self) -> None:
        before = self.pids()
        self.gpubus("down", "--data-dir", str(self.dir), check=False)
        left = [name for name, pid in {**before, **self.pids()}.items() if alive(pid)]
        assert not left, f"down left processes running: {left}"
        assert not self.leftovers(), "down left processes that belong to the data dir"

    def leftovers(self) -> dict[int, str]:
        """Every live process whose command line or GPUBUS_DATA_DIR names this data dir, this test aside."""
        found = {}
        root = str(self.dir).encode()
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
                variables = (entry / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            ours = b"GPUBUS_DATA_DIR=" + root in variables or any(
                word == root or word.startswith(root + b"/") for word in words
            )
            if ours and int(entry.name) != os.getpid() and alive(int(entry.name)):
                found[int(entry.name)] = b" ".join(words).decode(errors="replace").strip()
        return found

    def tails(self) -> str:
        out = []
        for log in sorted((self.dir / "log").glob("*.log")):
            lines = [
                line
                for line in log.read_text(errors="replace").splitlines()
                if '"level":"error"' in line or "Traceback" in line or "Error" in line
            ]
            if lines:
                out.append(f"== {log.name}\n" + "\n".join(lines[-5:]))
        return "\n".join(out)[-6000:]

    def pids(self) -> dict[str, int]:
        path = self.dir / "pids.json"
        raw = json.loads(path.read_text()) if path.exists() else {}
        return {name: (value["pid"] if isinstance(value, dict) else value) for name, value in raw.items()}

    def exports(self) -> dict[str, str]:
        found = {}
        for line in (self.dir / "env").read_text().splitlines():
            if "=" in line:
                name, _, value = line.removeprefix("export ").partition("=")
                found[name] = shlex.split(value)[0] if value else ""
        return found

    def kubectl(
        self, *args: str, text: str | None = None, check: bool = True, timeout: float = 60
    ) -> subprocess.CompletedProcess[str]:
        env = {**self.env, "KUBECONFIG": str(self.dir / "kubeconfig"), "HOME": str(self.dir)}
        done = subprocess.run(
            [str(BIN / "kubectl"), *args],
            env=env,
            input=text,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        if check and done.returncode:
            raise AssertionError(
                f"kubectl {' '.join(args)} exited {done.returncode}\n{done.stdout}\n{done.stderr}\n{self.tails()}"
            )
        return done

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        token: str | None = None,
        content: str = "application/json",
        headers: Mapping[str, str] | None = None,
        timeout: float = 30,
    ) -> tuple[int, Any]:
        env = self.exports()
        request = urllib.request.Request(env["GPUBUS_URL"] + path, method=method, headers=dict(headers or {}))
        request.add_header("Authorization", f"Bearer {token or env['GPUBUS_TOKEN']}")
        data = None
        if body is not None:
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            request.add_header("Content-Type", content)
        try:
            with urllib.request.urlopen(request, data, timeout=timeout) as answer:
                status, raw = answer.status, answer.read()
        except urllib.error.HTTPError as error:
            status, raw = error.code, error.read()
        try:
            return status, json.loads(raw)
        except ValueError:
            return status, raw.decode(errors="replace")

    def get(
        self, plural: str, name: str = "", namespace: str | None = "default", group: str = "worker.gpustack.ai/v1"
    ) -> Any:
        root = f"/apis/{group}" if "/" in group else f"/api/{group}"
        scope = f"/namespaces/{namespace}" if namespace else ""
        status, body = self.request("GET", f"{root}{scope}/{plural}{'/' + name if name else ''}")
        return body if status == 200 else None

    def kill(self, process: str, number: int = signal.SIGKILL) -> int:
        pid = self.pids()[process]
        os.kill(pid, number)
        return pid


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def condition(body: Any, kind: str) -> dict[str, Any]:
    for item in ((body or {}).get("status") or {}).get("conditions") or ():
        if item["type"] == kind:
            return item
    return {}
