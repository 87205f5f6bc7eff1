"""The FastStream broker of one controller: durable subscribers with our acknowledgement, traces, metrics and log line.

FastStream's own acknowledgement is off (it discards a message at the first exception). Middlewares in the one right
order: observe outside, settle inside. Must not know business.
Read next: shared/bus/settle.py.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Mapping
from typing import Any

from nats.aio.client import Client
from nats.aio.msg import Msg

from shared import subjects
from shared.bus.client import BusClient, request_context
from shared.bus.connection import Connection
from shared.bus.delivery import Delivery
from shared.bus.exhausted import watch_exhausted
from shared.bus.lean import hidden
from shared.bus.pull import PULL_SECONDS, BoundJetStream
from shared.bus.requests import serve
from shared.bus.router import Bound, Router
from shared.clock import Clock
from shared.telemetry import metrics, tracing
from shared.telemetry.logging import get_logger

# FastStream brings its own HTTP server and command line when it finds their libraries.
with hidden("uvicorn", "click", "typer", "watchfiles", "starlette", "email_validator", "trio"):
    from faststream import AckPolicy, BaseMiddleware
    from faststream.message import StreamMessage
    from faststream.nats import JStream, NatsBroker, PullSub

log = get_logger(__name__)

_DELIVERY: contextvars.ContextVar[Delivery] = contextvars.ContextVar("gpubus_delivery")
