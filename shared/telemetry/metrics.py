"""Prometheus instruments of the plumbing: names, labels, help texts. Domain instruments are declared beside their use.

Owns the names. Must not compute anything.
Read next: shared/service.py, which serves them under /metrics.
"""

from __future__ import annotations

from prometheus_client import REGISTRY, Counter, Gauge, Histogram, generate_latest

MESSAGES_HANDLED = "gpubus_messages_handled_total"
HANDLE_SECONDS = "gpubus_handle_seconds"
OUTBOX_DEPTH = "gpubus_outbox_depth"
OUTBOX_OLDEST_SECONDS = "gpubus_outbox_oldest_seconds"
OUTBOX_REFUSED = "gpubus_outbox_refused_total"
RELAYED = "gpubus_relayed_total"
REPUBLISHED = "gpubus_republished_total"
DEAD_LETTERS = "gpubus_dead_letters_total"
COMMIT_CONFLICTS = "gpubus_commit_conflicts_total"
CONSUMER_LAG = "gpubus_consumer_lag"
BUS_CONNECTED = "gpubus_bus_connected"
BUS_RECONNECTS = "gpubus_bus_reconnects_total"
LOOP_RESTARTS = "gpubus_loop_restarts_total"

# A handler answers within 5 s (house rule); most take a few milliseconds.
_HANDLE_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)

messages_handled = Counter(MESSAGES_HANDLED, "Messages settled, by how.", ["service", "handler", "outcome"])
handle_seconds = Histogram(HANDLE_SECONDS, "Seconds in one handler.", ["service", "handler"], buckets=_HANDLE_BUCKETS)
outbox_depth = Gauge(OUTBOX_DEPTH, "Entries committed and not yet published.", ["service"])
outbox_oldest_seconds = Gauge(OUTBOX_OLDEST_SECONDS, "Age of the oldest unpublished entry.", ["service"])
outbox_refused = Counter(OUTBOX_REFUSED, "Entries the bus refused for good; each is a dead letter.", ["service"])
relayed = Counter(RELAYED, "Entries published with a PubAck.", ["service"])
republished = Counter(
    REPUBLISHED, "Times the relay went back because its stream was missing, younger or shorter.", ["service"]
)
dead_letters = Counter(DEAD_LETTERS, "Messages parked for a person.", ["service", "handler", "code"])
commit_conflicts = Counter(COMMIT_CONFLICTS, "Commits that lost a compare-and-set.", ["service"])
consumer_lag = Gauge(CONSUMER_LAG, "Messages waiting for a durable, as of its last delivery.", ["service", "handler"])
bus_connected = Gauge(BUS_CONNECTED, "1 while connected to NATS.", ["service"])
bus_reconnects = Counter(BUS_RECONNECTS, "Connections to NATS re-established.", ["service"])
loop_restarts = Counter(LOOP_RESTARTS, "Loops started again after they raised.", ["service", "loop"])


def exposition() -> bytes:
    """Everything in the Prometheus text format."""
    return generate_latest(REGISTRY)
