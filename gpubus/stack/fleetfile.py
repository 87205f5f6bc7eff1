"""The names of a fleet file's simulated nodes: all that `up` must know of it, for the fleet's permissions.

Must not check the rest: gpubus/fleet.py reads the whole file. Read next: gpubus/fleet.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpubus.refusal import Refusal

MOST_NODES = 1000
"""Live nodes on one host; larger fleets run under a virtual clock."""


def node_names(path: Path) -> tuple[str, ...]:
    """Every node: `name`, or `name-0` to `name-<count - 1>` when count is over 1.

    Raises:
        Refusal: the file is missing or has no nodes.
    """
    import yaml

    try:
        body = yaml.safe_load(path.read_text())
    except OSError as error:
        raise Refusal(f"The fleet file {path} cannot be read: {error.strerror}.") from error
    except yaml.YAMLError as error:
        raise Refusal(f"The fleet file {path} is not YAML: {str(error).splitlines()[0]}.") from error
    nodes = body.get("nodes") if isinstance(body, dict) else None
    if not isinstance(nodes, list) or not nodes:
        raise Refusal(f"The fleet file {path} lists no `nodes`.")
    names = tuple(name for entry in nodes for name in _expand(path, entry))
    if len(names) > MOST_NODES:
        raise Refusal(f"The fleet file {path} has {len(names)} nodes; a live stack takes {MOST_NODES}.")
    return names


def _expand(path: Path, entry: Any) -> Iterator[str]:
    name = entry.get("name") if isinstance(entry, dict) else None
    count = entry.get("count", 1) if isinstance(entry, dict) else 1
    if not isinstance(name, str) or not name or not isinstance(count, int) or count < 0:
        raise Refusal(f"The fleet file {path} has a node without a `name` or with a `count` that is no number.")
    if count == 1:
        yield name
    else:
        yield from (f"{name}-{number}" for number in range(count))
