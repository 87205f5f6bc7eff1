"""What led to what: the current cause of every step, and OpenTelemetry spans that follow it across the bus.

Owns span and attribute names (OTel messaging conventions) and the context variable that `commit` reads. The SDK is
imported only when traces are switched on; without it every span is a no-op of the API.
Read next: shared/bus/settle.py (consume side), shared/bus/relay.py (publish side).
"""

from __future__ import annotations

import contextvars
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opentelemetry import trace

from shared.errors import InvalidArgument

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter

SYSTEM = "messaging.system"
DESTINATION = "messaging.destination.name"
OPERATION = "messaging.operation.type"
MESSAGE_ID = "messaging.message.id"
CONVERSATION = "messaging.message.conversation_id"
CONSUMER_GROUP = "messaging.consumer.group.name"

_TRACER = "gpubus"
_VERSION = "00"
_SAMPLED = "01"


@dataclass(frozen=True, slots=True)
class Cause:
    """Why something happens now: the operation it belongs to, the message that led here, and the trace."""

    correlation_id: str = ""
    causation_id: str = ""
    traceparent: str = ""


_NONE = Cause()
_CAUSE: contextvars.ContextVar[Cause] = contextvars.ContextVar("gpubus_cause", default=_NONE)


def current_cause() -> Cause:
    """The cause of the code that runs now; empty outside a message. `commit` copies it into what it writes."""
    cause = _CAUSE.get()
    live = _live_traceparent()
    return Cause(cause.correlation_id, cause.causation_id, live) if live else cause


@contextmanager
def caused_by(cause: Cause) -> Iterator[None]:
    """Everything inside (and every task started inside) is caused by `cause`."""
    token = _CAUSE.set(cause)
    try:
        yield
    finally:
        _CAUSE.reset(token)


def current_span_ids() -> dict[str, str]:
    """`trace_id` and `span_id` of the current span for logs; empty when tracing is off."""
    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return {}
    return {"trace_id": f"{context.trace_id:032x}", "span_id": f"{context.span_id:016x}"}


@contextmanager
def span(
    operation: str, destination: str, attributes: Mapping[str, Any], traceparent: str = ""
) -> Iterator[trace.Span]:
    """One messaging span named `<operation> <destination>`.

    Args:
        operation: `process` or `publish`.
        destination: Subject template, low cardinality (`gpubus.evt.device.found`).
        attributes: More attributes, by the constants above.
        traceparent: W3C context of the sender; it becomes a link, not the parent.
    """
    links = [trace.Link(context)] if (context := parse_traceparent(traceparent)) else []
    kind = trace.SpanKind.CONSUMER if operation == "process" else trace.SpanKind.PRODUCER
    values = {SYSTEM: "nats", DESTINATION: destination, OPERATION: operation, **attributes}
    tracer = trace.get_tracer(_TRACER)
    with tracer.start_as_current_span(
        f"{operation} {destination}", kind=kind, attributes=values, links=links
    ) as opened:
        yield opened


def parse_traceparent(text: str) -> trace.SpanContext | None:
    """The sender's span context, None when the text is empty or malformed."""
    parts = text.split("-")
    try:
        trace_id, span_id, flags = int(parts[1], 16), int(parts[2], 16), int(parts[3], 16)
    except (IndexError, ValueError):
        return None
    context = trace.SpanContext(trace_id, span_id, is_remote=True, trace_flags=trace.TraceFlags(flags & 1))
    return context if context.is_valid else None


def _live_traceparent() -> str:
    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return ""
    flags = _SAMPLED if context.trace_flags.sampled else "00"
    return f"{_VERSION}-{context.trace_id:032x}-{context.span_id:016x}-{flags}"


def configure(target: str, service: str, instance: str) -> None:
    """Export spans to `file:///path` (JSON lines) or an OTLP/HTTP endpoint; an empty target leaves tracing off.

    Raises:
        InvalidArgument: an unknown scheme, or the package for it is not installed.
    """
    if not target:
        return
    try:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise InvalidArgument("traces needs the extra gpubus[tracing] (opentelemetry-sdk)") from error
    resource = Resource.create(
        {"service.namespace": "gpubus", "service.name": service, "service.instance.id": instance}
    )
    provider = TracerProvider(resource=resource)
    provider.add_span_processor(BatchSpanProcessor(_exporter(target), schedule_delay_millis=1000))
    trace.set_tracer_provider(provider)


def flush() -> None:
    """Hand finished spans to the exporter; called at the end of a drain."""
    provider = trace.get_tracer_provider()
    shutdown = getattr(provider, "shutdown", None)
    if shutdown is not None:
        shutdown()


def _exporter(target: str) -> SpanExporter:
    if target.startswith("file://"):
        return _file_exporter(Path(target.removeprefix("file://")))
    if target.startswith(("http://", "https://")):
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import (  # type: ignore[import-not-found,unused-ignore]
                OTLPSpanExporter,
            )
        except ImportError as error:
            raise InvalidArgument("traces over http needs opentelemetry-exporter-otlp-proto-http") from error
        exporter: SpanExporter = OTLPSpanExporter(endpoint=target)
        return exporter
    raise InvalidArgument(f"traces: {target!r} is neither file:///path nor http(s)://host")


def _file_exporter(path: Path) -> SpanExporter:
    from opentelemetry.sdk.trace.export import ConsoleSpanExporter

    path.parent.mkdir(parents=True, exist_ok=True)
    stream = path.open("a", encoding="utf-8", buffering=1)
    return ConsoleSpanExporter(out=stream, formatter=lambda finished: finished.to_json(indent=None) + "\n")
