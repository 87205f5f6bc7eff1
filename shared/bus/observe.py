"""What is seen of every handled message: one canonical log line, two metrics, one span.

Owns their fields. Must not change any outcome. Read next: shared/telemetry/tracing.py.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import TYPE_CHECKING, Any

from shared import subjects
from shared.bus.settle import Answer
from shared.errors import GpubusError
from shared.messages.base import Query
from shared.telemetry import metrics, tracing
from shared.telemetry.logging import get_logger

if TYPE_CHECKING:
    from shared.bus.context import MessageContext
    from shared.bus.delivery import Delivery
    from shared.bus.router import Spec

log = get_logger("shared.bus.message")


async def observed_delivery(delivery: Delivery, durable: str, work: Callable[[], Awaitable[Any]]) -> Any:
    """Run `work` inside the delivery's cause and span, then count and log what the settlement was."""
    spec, context, cause = delivery.bound.spec, delivery.context, delivery.cause
    attributes = {
        tracing.MESSAGE_ID: context.message_id,
        tracing.CONVERSATION: context.correlation_id,
        tracing.CONSUMER_GROUP: durable,
    }
    started = perf_counter()
    with (
        tracing.caused_by(cause),
        tracing.span("process", subjects.template(context.subject), attributes, cause.traceparent),
    ):
        result = await work()
        judgement = delivery.judgement
        if judgement is None:  # cancelled: it will be delivered again
            return result
        _write(delivery.service, spec, context, judgement.outcome, judgement.error, perf_counter() - started)
    lag = delivery.raw.metadata.num_pending
    metrics.consumer_lag.labels(delivery.service, spec.handler).set(lag)
    return result


async def observed_request(
    service: str, spec: Spec, context: MessageContext, work: Callable[[], Awaitable[Answer]]
) -> Answer:
    """Run a request handler, then count and log its outcome; its error goes on."""
    started = perf_counter()
    outcome, failure = "bug", None
    try:
        result = await work()
    except GpubusError as error:
        outcome, failure = "refused", error
        raise
    else:
        outcome = "answered"
        return result
    finally:
        _write(service, spec, context, outcome, failure, perf_counter() - started)


def _write(
    service: str, spec: Spec, context: MessageContext, outcome: str, error: GpubusError | None, seconds: float
) -> None:
    metrics.messages_handled.labels(service, spec.handler, outcome).inc()
    metrics.handle_seconds.labels(service, spec.handler).observe(seconds)
    # Agents ask what they should have all the time: only what went wrong with a question is news.
    quiet = error is None and isinstance(spec.message, type) and issubclass(spec.message, Query)
    level = log.debug if quiet else log.info if error is None else log.warning
    level(
        "message_handled",
        handler=spec.handler,
        subject=context.subject,
        message_id=context.message_id,
        attempt=context.attempt,
        aggregate=context.subject.split(".")[2],
        resource_version=context.resource_version or None,
        outcome=outcome,
        code=error.code.value if error else None,
        reason=error.message if error else None,
        duration_ms=round(seconds * 1000, 3),
    )
