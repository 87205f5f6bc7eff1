"""A gateway of canned answers: what the resource verbs send and how they show what comes back."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

WORKER = "worker.gpustack.ai"


def resource(plural: str, kind: str, short: str, *, namespaced: bool = True) -> dict[str, Any]:
    return {
        "resource": plural, "responseKind": {"kind": kind}, "singularResource": kind.lower(), "shortNames": [short],
        "scope": "Namespaced" if namespaced else "Cluster",
    }  # fmt: skip


def group(name: str, version: str, *resources: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"name": name}, "versions": [{"version": version, "resources": list(resources)}]}


DISCOVERY = {
    "/api": {
        "items": [group("", "v1", resource("pods", "Pod", "po"), resource("nodes", "Node", "no", namespaced=False))]
    },
    "/apis": {
        "items": [
            group(WORKER, "v1", resource("modeldeployments", "ModelDeployment", "md")),
            group("kueue.x-k8s.io", "v1beta2", resource("workloads", "Workload", "wl")),
        ]
    },
}
COLUMNS = [{"name": "Name", "priority": 0}, {"name": "Ready", "priority": 0}, {"name": "Node", "priority": 1}]


def table(*rows: tuple[str, str, str], revision: str = "7") -> dict[str, Any]:
    return {
        "kind": "Table", "metadata": {"resourceVersion": revision}, "columnDefinitions": COLUMNS,
        "rows": [{"cells": list(row), "object": {"metadata": {"namespace": "default", "name": row[0]}}} for row in rows],
    }  # fmt: skip


def status(code: int, message: str) -> dict[str, Any]:
    return {"kind": "Status", "code": code, "message": message}


@dataclass
class Canned:
    """Answers by (method, path), and what was asked."""

    url: str = ""
    answers: dict[tuple[str, str], tuple[int, Any]] = field(default_factory=dict)
    asked: list[tuple[str, str, dict[str, str], dict[str, str], Any]] = field(default_factory=list)
    """method, path, query, headers, JSON body"""


@contextmanager
def canned_gateway(answers: dict[tuple[str, str], tuple[int, Any]]) -> Iterator[Canned]:
    """Serve until the block ends; a list is streamed a line each, text as it is."""
    canned = Canned(answers={("GET", path): (200, body) for path, body in DISCOVERY.items()} | answers)

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            parts = urlsplit(self.path)
            raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            query = {name: values[0] for name, values in parse_qs(parts.query).items()}
            canned.asked.append((self.command, parts.path, query, dict(self.headers), json.loads(raw) if raw else None))
            key = (self.command, parts.path + ("?watch" if "watch" in query else ""))
            code, body = canned.answers.get(key, (404, status(404, f"{parts.path} not found")))
            lines = isinstance(body, list)
            text = (
                "".join(json.dumps(line) + "\n" for line in body)
                if lines
                else body
                if isinstance(body, str)
                else json.dumps(body)
            )
            self.send_response(code)
            self.send_header("Content-Type", "text/plain" if isinstance(body, str) else "application/json")
            self.send_header("Content-Length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())

        do_GET = do_POST = do_PATCH = do_DELETE = answer  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    canned.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield canned
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
