"""Structured logs: one JSON line an event on stderr, with the same field names in every process.

Owns the field names. Must never be given payloads, keys, prompts or secrets; event names are constant snake_case.
Read next: shared/telemetry/tracing.py, which supplies the correlation fields.
"""

from __future__ import annotations

import logging
import sys
import traceback
from datetime import UTC, datetime
from typing import Any

import orjson

from shared.errors import GpubusError
from shared.telemetry.tracing import current_cause, current_span_ids

LEVELS = ("debug", "info", "warning", "error")
# Third parties log connection errors per attempt and may show message bodies: only what is wrong passes.
_QUIET = ("nats", "faststream", "asyncio", "redis", "uvicorn", "urllib3")


class Logger:
    """Writes events under one name. Fields are keyword arguments; None is left out."""

    __slots__ = ("_log",)

    def __init__(self, name: str) -> None:
        self._log = logging.getLogger(name)

    def debug(self, event: str, **fields: Any) -> None:
        """For a developer following one decision."""
        self._write(logging.DEBUG, event, fields)

    def info(self, event: str, **fields: Any) -> None:
        """What happened, once."""
        self._write(logging.INFO, event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        """Something a person may want to look at."""
        self._write(logging.WARNING, event, fields)

    def error(self, event: str, *, error: BaseException | None = None, **fields: Any) -> None:
        """Something is broken; `error` adds its type, text and stack."""
        self._write(logging.ERROR, event, fields, error)

    def exception(self, event: str, **fields: Any) -> None:
        """Inside an except block: an error with the type, text and stack of what was caught."""
        self._write(logging.ERROR, event, fields, sys.exception())

    def _write(self, level: int, event: str, fields: dict[str, Any], error: BaseException | None = None) -> None:
        if self._log.isEnabledFor(level):
            self._log.log(level, event, extra={"gpubus": fields, "gpubus_error": error})


def get_logger(name: str) -> Logger:
    """The logger of one module."""
    return Logger(name)


class JsonFormatter(logging.Formatter):
    """Turns any record, ours or a library's, into one JSON line."""

    def __init__(self, service: str, instance: str) -> None:
        super().__init__()
        self._base = {"service": service, "instance": instance}

    def format(self, record: logging.LogRecord) -> str:
        """See base."""
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        line: dict[str, Any] = {
            "ts": moment,
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **self._base,
        }
        fields = getattr(record, "gpubus", None)
        if fields is None:
            line |= {"event": "library_log", "library": record.name, "text": record.getMessage()[:2000]}
        line |= _correlation() | _without_none(fields or {})
        error = getattr(record, "gpubus_error", None) or (record.exc_info[1] if record.exc_info else None)
        if error is not None:
            line |= _described(error)
        return orjson.dumps(line, default=str, option=orjson.OPT_NON_STR_KEYS).decode()


def configure(service: str, instance: str, level: str = "info") -> None:
    """Send everything to stderr as JSON lines; called once per process by shared/service.py."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter(service, instance))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.captureWarnings(capture=True)


def _correlation() -> dict[str, Any]:
    cause = current_cause()
    line: dict[str, Any] = {}
    if cause.correlation_id:
        line["correlation_id"] = cause.correlation_id
    if cause.causation_id:
        line["causation_id"] = cause.causation_id
    return line | current_span_ids()


def _without_none(fields: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value is not None}


def _described(error: BaseException) -> dict[str, Any]:
    line: dict[str, Any] = {"error": type(error).__name__, "error_text": str(error)[:2000]}
    if isinstance(error, GpubusError):
        line["code"] = error.code.value
    line["stack"] = "".join(traceback.format_exception(error, limit=-12))[-8000:]
    return line
