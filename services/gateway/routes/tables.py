"""Objects as meta.k8s.io/v1 Tables: what `kubectl get` prints.

Must not know columns (domain/columns.py does). Read next: resources.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from services.gateway.domain.columns import columns_of
from services.gateway.domain.view import metadata_only

INCLUDES = ("None", "Metadata", "Object")


def table(
    kind: str, views: Iterable[Mapping[str, Any]], *, now: datetime, include: str = "Metadata", headed: bool = True
) -> dict[str, Any]:
    """A Table of objects as their reader sees them.

    Args:
        kind: Whose columns.
        views: The objects.
        now: What ages are told against.
        include: What of the object each row carries: None, Metadata or Object.
        headed: With column definitions; a watch sends them once.
    """
    columns = columns_of(kind)
    rows = [{"cells": [c.read(view, now) for c in columns], "object": _included(view, include)} for view in views]
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {},
        "columnDefinitions": [column.definition() for column in columns] if headed else [],
        "rows": rows,
    }


def _included(view: Mapping[str, Any], include: str) -> Mapping[str, Any] | None:
    if include == "None":
        return None
    return metadata_only(view) if include == "Metadata" else view
