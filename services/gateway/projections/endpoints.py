"""The workers' tables out of documents: deployments, their ready Pods, API keys.

Must not be written by anything but the cache. Read next: ../domain/tables.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Protocol

from services.gateway.domain.tables import Endpoint, Key, Model, Tables
from shared.resources.deployment import LABEL_DEPLOYMENT
from shared.store.documents import Document

KINDS = frozenset({"ModelDeployment", "Pod", "ApiKey"})


class Documents(Protocol):
    """What the tables are built from; the cache is one."""

    def list(self, kind: str, namespace: str | None = None) -> Sequence[Document]:
        """The documents of a kind."""
        ...


def build(cache: Documents) -> Tables:
    """Everything that workers need, as of now."""
    ready: dict[tuple[str, str], list[Endpoint]] = {}
    for pod in cache.list("Pod"):
        deployment = (pod.body["metadata"].get("labels") or {}).get(LABEL_DEPLOYMENT)
        endpoint = _endpoint(pod) if deployment else None
        if deployment and endpoint is not None:
            ready.setdefault((pod.namespace, deployment), []).append(endpoint)
    models: dict[tuple[str, str], Model] = {}
    for deployment in cache.list("ModelDeployment"):
        model = _model(deployment, ready.get((deployment.namespace, deployment.name), []))
        known = models.get((model.namespace, model.name))
        # Two deployments of one name in one namespace serve it together.
        if known is not None:
            together = tuple(dict.fromkeys((*known.endpoints, *model.endpoints)))
            model = Model(model.namespace, model.name, known.created, together, "" if together else known.waiting)
        models[model.namespace, model.name] = model
    keys = [key for document in cache.list("ApiKey") if (key := _key(document)) is not None]
    return Tables(tuple(models.values()), tuple(keys))


def _endpoint(pod: Document) -> Endpoint | None:
    status = pod.body.get("status") or {}
    told = status.get("endpoint")
    if not told or pod.body["metadata"].get("deletionTimestamp") or _condition(status, "Ready") != "True":
        return None
    return Endpoint(told["address"], told["port"], told.get("path", ""), told.get("token", ""), pod.uid)


def _model(document: Document, endpoints: list[Endpoint]) -> Model:
    spec, metadata = document.body["spec"], document.body["metadata"]
    created = _unix(metadata.get("creationTimestamp"))
    waiting = "" if endpoints else _waiting(document.body.get("status") or {})
    order = tuple(sorted(endpoints, key=lambda endpoint: endpoint.replica))
    return Model(document.namespace, spec["model"]["name"], int(created), order, waiting)


def _waiting(status: dict[str, Any]) -> str:
    for condition in status.get("conditions") or ():
        if condition.get("status") != "True" and condition.get("message"):
            return str(condition["message"])
    return "its replicas are starting"


def _key(document: Document) -> Key | None:
    spec = document.body.get("spec") or {}
    if not spec.get("hash") or spec.get("disabled") or document.body["metadata"].get("deletionTimestamp"):
        return None
    role = spec.get("role", "model-user")
    models = tuple(spec.get("models") or ())
    return Key(spec["hash"], document.uid, document.namespace, role, models, _unix(spec.get("expires")))


def _condition(status: dict[str, Any], kind: str) -> str:
    return next((str(c.get("status")) for c in status.get("conditions") or () if c.get("type") == kind), "")


def _unix(text: str | None) -> float:
    if not text:
        return 0.0
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return 1.0  # unreadable: long ago
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
