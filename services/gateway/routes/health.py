"""/livez, /readyz, /healthz and /metrics of the gateway, open to all: they show states and counts, no content.

Read next: shared/telemetry/metrics.py.
"""

from __future__ import annotations

from services.gateway.routes.api import Api
from services.gateway.routes.http import Response, json_response

PATHS = ("livez", "readyz", "healthz", "metrics")
_METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


async def health(api: Api, path: str) -> Response:
    """One of PATHS."""
    if path == "metrics":
        return Response(200, await api.metrics(), _METRICS_TYPE)
    if path == "livez":
        return Response(200, b"ok", "text/plain")
    checks = api.ready()
    ready = all(checks.values())
    return json_response({"ready": ready, "checks": checks}, 200 if ready else 503)
