"""The demo's two manifests, as any user would apply them, and its question.

Read next: gpubus/demo/story.py.
"""

from __future__ import annotations

import platform
from typing import Any

from gpubus.demo.weights import REPOSITORY

NAME = "smollm2"
QUESTION = "What is the capital of France? Answer in one short sentence."
_WORKER = "worker.gpustack.ai/v1"
_ARCH = {"x86_64": "amd64", "aarch64": "arm64", "amd64": "amd64", "arm64": "arm64"}


def instance_type() -> str:
    """The CPU pool of this host."""
    machine = platform.machine().lower()
    return f"gpustack--generic-{platform.system().lower()}-{_ARCH.get(machine, machine)}"


def manifests() -> list[dict[str, Any]]:
    """The artifact and the deployment."""
    metadata = {"name": NAME, "namespace": "default"}
    source = {"huggingFace": {"repository": REPOSITORY, "revision": "main"}}
    role = {
        "name": "server",
        "replicas": 1,
        "instanceType": instance_type(),
        "resources": {"accelerator": 0, "cpu": "1", "ram": "1Gi"},
    }
    spec = {"model": {"name": NAME, "artifactRef": {"name": NAME}}, "engine": {"name": "LlamaCpp"}, "roles": [role]}
    return [
        {"apiVersion": _WORKER, "kind": "ModelArtifact", "metadata": metadata, "spec": {"source": source}},
        {"apiVersion": _WORKER, "kind": "ModelDeployment", "metadata": metadata, "spec": spec},
    ]
