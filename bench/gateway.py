"""Chat requests through the gateway, beside nginx as reverse proxy and the LiteLLM proxy, over one canned upstream.

The upstream is an nginx that answers every chat with fixed bytes; it is served by gpubus as a replica of a Custom engine,
so the whole path is the real one: key, route, least load, usage metering. Load by wrk, on the same cores. Each door is
measured in turn, three rounds, median requests a second. Needs wrk and nginx (installed by apt when root) and LiteLLM
(in an environment of its own under bench/.cache); what is missing is `not measured: why`. Run: python -m bench.gateway.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.report import percentiles
from tests.support.servers import free_port
from tests.support.stack import Stack, condition

MODEL, STREAMED = "canned", "canned-stream"
CONNECTIONS = (1, 16, 64)
SECONDS = 3
ROUNDS = 3
CACHE = Path(__file__).parent / ".cache"
LITELLM = "litellm[proxy]==1.108.7"
REQUEST = {"model": MODEL, "messages": [{"role": "user", "content": "Say hello."}]}
USAGE = {"prompt_tokens": 12, "completion_tokens": 9, "total_tokens": 21}
ANSWER = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1700000000,
    "model": MODEL,
    "choices": [
        {"index": 0, "message": {"role": "assistant", "content": "Hello! How can I help you?"}, "finish_reason": "stop"}
    ],
    "usage": USAGE,
}
PIECE = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1700000000, "model": MODEL}
STREAM = (
    "".join(
        f"data: {json.dumps({**PIECE, 'choices': [{'index': 0, 'delta': {'content': word}, 'finish_reason': None}]})}\n\n"
        for word in ("Hello", "!", " How", " can", " I", " help", "?")
    )
    + f"data: {json.dumps({**PIECE, 'choices': [{'index': 0, 'delta': {}, 'finish_reason': 'stop'}]})}\n\n"
    + "data: [DONE]\n\n"
)
COMMON = """
daemon off; worker_processes 1; error_log /dev/null crit; pid {home}/nginx.pid;
events {{ worker_connections 4096; }}
http {{
  access_log off; keepalive_requests 1000000000; keepalive_timeout 600s; client_body_temp_path {home}/body;
  proxy_temp_path {home}/proxy; fastcgi_temp_path {home}/f; uwsgi_temp_path {home}/u; scgi_temp_path {home}/s;
  {servers}
}}
"""
SERVER = "server {{ listen 127.0.0.1:{port} backlog=4096; location = /v1/chat/completions {{ {answer} }} }}"
PROXY = """
upstream to{own} {{ server 127.0.0.1:{port}; keepalive 128; }}
server {{
  listen 127.0.0.1:{own} backlog=4096; proxy_buffering off;
  location / {{ proxy_pass http://to{own}; proxy_http_version 1.1; proxy_set_header Connection ""; }}
}}
"""
POOL = "gpustack--generic-linux-amd64"


@dataclass(frozen=True)
class Door:
    """One way to the canned upstream."""

    url: str
    streamed_url: str
    key: str = "none"


def run(directory: Path, name: str, servers: str) -> list[str]:
    """The command of an nginx with these servers; `$(GPUBUS_PORT)` may stand for its port."""
    home = directory / name
    home.mkdir()
    conf = home / "nginx.conf"
    conf.write_text(COMMON.format(home=home, servers=servers))
    return [shutil.which("nginx") or "nginx", "-p", str(home), "-c", str(conf)]


def canned(directory: Path, name: str, content: str, kind: str) -> list[str]:
    """A replica's command: nginx that answers every chat with this content on the port it is given."""
    answer = f"default_type {kind}; return 200 '{content}';"
    command = run(directory, name, SERVER.format(port="PORT", answer=answer))
    own = f"sed s/:PORT/:$(GPUBUS_PORT)/ {command[-1]} > {command[-1]}.own && exec {' '.join(command)}.own"
    return ["sh", "-c", own]


def deployment(name: str, command: list[str]) -> dict[str, Any]:
    role = {
        "name": "server",
        "replicas": 1,
        "instanceType": POOL,
        "command": command,
        "resources": {"accelerator": 0, "cpu": "500m", "ram": "64Mi"},
    }
    spec = {"model": {"name": name}, "engine": {"name": "Custom"}, "roles": [role]}
    return {"apiVersion": "worker.gpustack.ai/v1", "kind": "ModelDeployment", "metadata": {"name": name}, "spec": spec}


def deploy(stack: Stack, name: str, command: list[str]) -> int:
    """The port of the ready replica."""
    stack.gpubus("apply", "-f", "-", text=json.dumps(deployment(name, command)))
    deadline = time.monotonic() + 60
    while condition(stack.get("modeldeployments", name), "Available").get("status") != "True":
        if time.monotonic() > deadline:
            raise TimeoutError(json.dumps(stack.get("modeldeployments", name)["status"]))
        time.sleep(0.1)
    return int(stack.get("pods", f"{name}-server-r0", group="v1")["status"]["endpoint"]["port"])


@contextmanager
def running(command: list[str], port: int, env: dict[str, str] | None = None, seconds: float = 90) -> Iterator[None]:
    """A process of ours that listens on a port; gone at the end."""
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(command, env={**os.environ, **(env or {})}, stdout=quiet, stderr=quiet)
    try:
        deadline = time.monotonic() + seconds
        while not listens(port):
            if process.poll() is not None or time.monotonic() > deadline:
                raise TimeoutError(f"{Path(command[0]).name} does not listen")
            time.sleep(0.1)
        yield
    finally:
        process.terminate()
        process.wait(timeout=30)


def listens(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def litellm(directory: Path, upstream: int, streaming: int, port: int) -> list[str]:
    """The command of a LiteLLM proxy with both models; installs it into bench/.cache at the first time."""
    home = CACHE / LITELLM.partition("==")[2]
    binary = home / "bin" / "litellm"
    if not binary.exists():
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
        pip = [str(home / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", LITELLM]
        subprocess.run(pip, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    models = [
        {"model_name": name, "litellm_params": {"model": f"openai/{name}", "api_base": base, "api_key": "none"}}
        for name, base in ((MODEL, f"http://127.0.0.1:{upstream}/v1"), (STREAMED, f"http://127.0.0.1:{streaming}/v1"))
    ]
    config = directory / "litellm.json"
    config.write_text(json.dumps({"model_list": models}))
    return [str(binary), "--config", str(config), "--host", "127.0.0.1", "--port", str(port), "--num_workers", "1"]


def wrk(door: Door, connections: int, script: Path) -> float:
    """Requests a second that were answered 200; one that was not spoils the run."""
    words = ["wrk", "-t1", f"-c{connections}", f"-d{SECONDS}s", "--timeout", "10s", "-s", str(script), door.url]
    out = subprocess.run(words, capture_output=True, text=True, check=True, env={**os.environ, "KEY": door.key}).stdout
    failed = re.search(r"Non-2xx or 3xx responses: (\d+)|Socket errors: (.*)", out)
    if failed:
        raise ConnectionError(f"{door.url} failed requests: {failed.group(0)}")
    return float(re.search(r"Requests/sec: +([\d.]+)", out).group(1))  # type: ignore[union-attr]


def first_byte(door: Door, requests: int) -> list[float]:
    """Milliseconds from sending a streamed request to the first byte of its body, on one kept connection."""
    body = json.dumps({**REQUEST, "model": STREAMED, "stream": True}).encode()
    host = door.streamed_url.split("/")[2]
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {door.key}\r\n"
    wire = f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
    name, _, port = host.partition(":")
    took = []
    with socket.create_connection((name, int(port)), timeout=30) as link:
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(requests):
            started = time.perf_counter()
            link.sendall(wire)
            seen = b""
            while b"data: " not in seen:
                seen += _more(link, seen)
            took.append((time.perf_counter() - started) * 1000)
            end = b"0\r\n\r\n" if b"chunked" in seen else b"[DONE]\n\n"
            while not seen.endswith(end):
                seen += _more(link, seen)
    return took


def _more(link: socket.socket, seen: bytes) -> bytes:
    data = link.recv(65536)
    if not data:
        raise ConnectionError(f"closed in mid-answer: {seen[:300]!r}")
    return data


def warm(door: Door) -> None:
    """Ask until it answers both models."""
    deadline = time.monotonic() + 60
    for model, url in ((MODEL, door.url), (STREAMED, door.streamed_url)):
        body = json.dumps({**REQUEST, "model": model, "stream": model == STREAMED}).encode()
        headers = {"Authorization": f"Bearer {door.key}", "Content-Type": "application/json"}
        while True:
            try:
                urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=30).read()
                break
            except (urllib.error.URLError, ConnectionError):
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)


def compared(doors: dict[str, Door], directory: Path) -> dict[str, Any]:
    """Medians of all rounds; the doors take turns within a round."""
    script = directory / "chat.lua"
    lines = ['wrk.method = "POST"', f"wrk.body = {json.dumps(json.dumps(REQUEST))}"]
    lines += ['wrk.headers["Content-Type"] = "application/json"']
    lines += ['wrk.headers["Authorization"] = "Bearer " .. os.getenv("KEY")']
    script.write_text("\n".join(lines))
    results: dict[str, Any] = {}
    for connections in CONNECTIONS:
        rates: dict[str, list[float]] = {name: [] for name in doors}
        for _ in range(ROUNDS):
            for name, door in doors.items():
                rates[name].append(wrk(door, connections, script))
        results[f"requests_per_s_{connections}_connections"] = {
            name: round(statistics.median(found)) for name, found in rates.items()
        }
        results[f"spread_{connections}_connections"] = {
            name: f"{min(found):.0f}-{max(found):.0f}" for name, found in rates.items()
        }
    samples: dict[str, list[float]] = {name: [] for name in doors}
    for _ in range(ROUNDS):
        for name, door in doors.items():
            samples[name] += first_byte(door, 20 if name == "litellm" else 200)
    results["first_streamed_byte_ms"] = {name: percentiles(found) for name, found in samples.items()}
    return results


def measure() -> dict[str, Any] | str:
    """Requests a second and milliseconds by door; `litellm` is missing with a reason when it cannot be installed."""
    missing = [tool for tool in ("wrk", "nginx") if not shutil.which(tool)]
    if missing and os.geteuid() == 0 and shutil.which("apt-get"):
        subprocess.run(["apt-get", "install", "-y", "-q", "wrk", "nginx-light"], check=False, stdout=subprocess.DEVNULL)
        missing = [tool for tool in missing if not shutil.which(tool)]
    if missing:
        return f"not measured: {' and '.join(missing)} missing (apt-get install wrk nginx-light)"
    with tempfile.TemporaryDirectory(prefix="gpubus-bench-") as name:
        directory = Path(name)
        stack = Stack(directory / "data").up()
        try:
            return with_stack(stack, directory)
        finally:
            stack.down()


def chat(port: int) -> str:
    """Where a door takes chats."""
    return f"http://127.0.0.1:{port}/v1/chat/completions"


def with_stack(stack: Stack, directory: Path) -> dict[str, Any]:
    """Deploy the upstream, open every door, compare."""
    upstream = deploy(stack, MODEL, canned(directory, MODEL, json.dumps(ANSWER), "application/json"))
    streaming = deploy(stack, STREAMED, canned(directory, STREAMED, STREAM, "text/event-stream"))
    env = stack.exports()
    ports = {name: free_port() for name in ("nginx", "nginx-streamed", "litellm")}
    doors = {
        "direct": Door(chat(upstream), chat(streaming)),
        "nginx": Door(chat(ports["nginx"]), chat(ports["nginx-streamed"])),
        "gpubus": Door(*(f"{env['OPENAI_BASE_URL']}/chat/completions",) * 2, env["GPUBUS_TOKEN"]),
    }
    servers = PROXY.format(port=upstream, own=ports["nginx"]) + PROXY.format(
        port=streaming, own=ports["nginx-streamed"]
    )
    proxy = run(directory, "nginx-proxy", servers)
    results: dict[str, Any] = {}
    with running(proxy, ports["nginx"]):
        warm(doors["gpubus"])
        try:
            command = litellm(directory, upstream, streaming, ports["litellm"])
            key = f"sk-{secrets.token_hex(32)}"
            local = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "ERROR", "LITELLM_MASTER_KEY": key}
            with running(command, ports["litellm"], local):
                doors["litellm"] = Door(*(chat(ports["litellm"]),) * 2, key)
                warm(doors["litellm"])
                results = compared(doors, directory)
        except (OSError, subprocess.SubprocessError) as error:
            doors.pop("litellm", None)
            results = compared(doors, directory)
            results["litellm"] = f"not measured: {error}"
    rates = results["requests_per_s_64_connections"]
    results["at_64_connections"] = {
        f"gpubus_over_{name}": round(rates["gpubus"] / rates[name], 2) for name in ("nginx", "litellm") if name in rates
    }
    return results


if __name__ == "__main__":
    print(json.dumps(measure(), indent=2))
