"""Streams and durables, computed from the catalogue, and the migrator that declares them.

Only the migrator's user may declare; services bind. It updates and adds first, then removes durables that the
catalogue does not know any more, and reports streams and durables that are not ours. Repeating it changes nothing: run
it whenever a NATS server (re)starts.
Read next: shared/bus/permissions.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nats.errors
import nats.js.errors
from nats.js.api import AckPolicy, ConsumerConfig, DiscardPolicy, RetentionPolicy, StorageType, StreamConfig
from nats.js.manager import JetStreamManager

from shared import subjects
from shared.bus.client import BusClient
from shared.bus.jetstream import api_error
from shared.bus.router import REDRIVE
from shared.messages import catalog
from shared.messages.base import Command, Fact, Report
from shared.telemetry.logging import get_logger

log = get_logger(__name__)

ADMIN = "admin"
"""The user of the migrator and of the command line."""
USER_APPLY = "apply"
"""Handler id of the users' stored commands in the gateway; not in the catalogue, their body is no envelope."""

_GIB = 1024**3
_MINUTE, _HOUR, _DAY = 60.0, 3600.0, 86400.0
ACK_WAIT_SECONDS = 3.0
MAX_DELIVER = 8
MAX_ACK_PENDING = 1000
"""At least 4 x workers x copies."""
DUPLICATE_SECONDS = 2 * _MINUTE
COMMAND_SECONDS = 10 * _MINUTE


@dataclass(frozen=True, slots=True)
class Durable:
    """One durable consumer: a service's handler on a stream."""

    stream: str
    name: str
    subject: str
    """What it takes of the stream."""


@dataclass(slots=True)
class Migration:
    """What a run of the migrator did."""

    created: list[str] = field(default_factory=list)
    updated: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    orphans: list[str] = field(default_factory=list)
    """Left alone: streams that nothing uses any more, durables that are not ours."""


def declared_streams(replicas: int = 1) -> list[StreamConfig]:
    """Every stream: one per owner of facts, reports, commands, dead letters."""
    owners = [
        _stream(subjects.owner_stream(service), [e.message for e in catalog.facts_of(service)], _DAY, replicas)
        for service in subjects.SERVICES
        if catalog.facts_of(service)
    ]
    commands = _stream(subjects.STREAM_COMMANDS, [], COMMAND_SECONDS, replicas)
    commands.retention = RetentionPolicy.WORK_QUEUE
    commands.duplicate_window = COMMAND_SECONDS
    commands.discard = DiscardPolicy.NEW  # a full queue must refuse, not forget
    reports = _stream(subjects.STREAM_REPORTS, [], _HOUR, replicas)
    dead = _stream(subjects.STREAM_DEAD_LETTERS, [], 30 * _DAY, replicas)
    return [*owners, reports, commands, dead]


def declared_durables() -> list[Durable]:
    """Every durable of every service."""
    return sorted(_durables(), key=lambda durable: (durable.stream, durable.name))


def durables_of(service: str) -> list[Durable]:
    """The durables that one service's copies share."""
    return [durable for durable in declared_durables() if durable.name.startswith(f"{service}-")]


def _durables() -> Iterator[Durable]:
    consuming: set[str] = set()
    for entry in catalog.ENTRIES:
        if not (place := _place(entry.message)):
            continue
        for service, handler in entry.consumers:
            consuming.add(service)
            yield Durable(place[0], subjects.durable(service, handler), place[1])
    for service in consuming | {"gateway"}:
        subject = subjects.redrive_filter(service)
        yield Durable(subjects.STREAM_COMMANDS, subjects.durable(service, REDRIVE), subject)
    name = subjects.durable("gateway", USER_APPLY)
    yield Durable(subjects.STREAM_COMMANDS, name, subjects.user_apply_filter(stored=True))


def _place(message: type[Any]) -> tuple[str, str] | None:
    if issubclass(message, Fact):
        return subjects.owner_stream(catalog.owner_of(message)), subjects.fact_filter(message)
    if issubclass(message, Report):
        return subjects.STREAM_REPORTS, subjects.report_filter(message)
    if issubclass(message, Command):
        return subjects.STREAM_COMMANDS, subjects.command_filter(message)
    return None


async def migrate(
    url: str,
    seed_file: Path | str | None = None,
    *,
    user: str = ADMIN,
    replicas: int = 1,
    connect_seconds: float = 30.0,
) -> Migration:
    """Declare everything; see the module.

    Raises:
        Unavailable: NATS or JetStream does not answer.
        FailedPrecondition: the server is older than 2.10, or refuses a change (it says which).
    """
    bus = await BusClient.connect(url=url, user=user, seed_file=seed_file, name="migrator", timeout=connect_seconds)
    try:
        done = await declare(bus, replicas)
    finally:
        await bus.close()
    log.info(
        "streams_declared",
        created=len(done.created),
        updated=len(done.updated),
        removed=done.removed,
        orphans=done.orphans,
    )
    return done


async def declare(bus: BusClient, replicas: int = 1) -> Migration:
    """The same on an open connection."""
    manager = JetStreamManager(bus.connection, timeout=5.0)
    done = Migration()
    try:
        for config in declared_streams(replicas):
            await _put_stream(manager, config, done)
        for durable in declared_durables():
            await _put_durable(manager, durable, done)
        await _remove(manager, done)
    except (nats.errors.Error, TimeoutError) as error:
        raise api_error(error) from None
    return done


async def _put_stream(manager: JetStreamManager, config: StreamConfig, done: Migration) -> None:
    assert config.name, "every stream has a name"
    try:
        current = (await manager.stream_info(config.name)).config
    except nats.js.errors.NotFoundError:
        await manager.add_stream(config)
        done.created.append(config.name)
        return
    if _differs(current, config):
        await manager.update_stream(config)
        done.updated.append(config.name)


def _differs(current: StreamConfig, wanted: StreamConfig) -> bool:
    names = ("subjects", "retention", "max_age", "max_bytes", "discard", "duplicate_window", "num_replicas", "storage")
    return any(getattr(current, name) != getattr(wanted, name) for name in names)


async def _put_durable(manager: JetStreamManager, durable: Durable, done: Migration) -> None:
    config = ConsumerConfig(
        name=durable.name,
        durable_name=durable.name,
        filter_subject=durable.subject,
        ack_policy=AckPolicy.EXPLICIT,
        ack_wait=ACK_WAIT_SECONDS,
        max_deliver=MAX_DELIVER,
        max_ack_pending=MAX_ACK_PENDING,
    )
    label = f"{durable.stream}/{durable.name}"
    try:
        current = (await manager.consumer_info(durable.stream, durable.name)).config
    except nats.js.errors.NotFoundError:
        await manager.add_consumer(durable.stream, config)
        done.created.append(label)
        return
    names = ("filter_subject", "ack_wait", "max_deliver", "max_ack_pending")
    if any(getattr(current, name) != getattr(config, name) for name in names):
        await manager.add_consumer(durable.stream, config)
        done.updated.append(label)


async def _remove(manager: JetStreamManager, done: Migration) -> None:
    wanted = {(durable.stream, durable.name) for durable in declared_durables()}
    streams = {str(config.name) for config in declared_streams()}
    for stream in sorted(streams):
        for info in await manager.consumers_info(stream):
            if (stream, info.name) in wanted:
                continue
            label = f"{stream}/{info.name}"
            if info.config.durable_name and info.name.startswith(tuple(f"{service}-" for service in subjects.SERVICES)):
                await manager.delete_consumer(stream, info.name)
                done.removed.append(label)
            elif info.config.durable_name:
                done.orphans.append(label)
    known = {str(info.config.name) for info in await manager.streams_info()}
    done.orphans += sorted(name for name in known - streams if name.startswith(subjects.owner_stream("")))


def _stream(name: str, facts: list[type[Any]], max_age: float, replicas: int) -> StreamConfig:
    return StreamConfig(
        name=name,
        subjects=list(subjects.stream_subjects(name, [fact.AGGREGATE for fact in facts])),
        retention=RetentionPolicy.LIMITS,
        max_age=max_age,
        max_bytes=_GIB,
        discard=DiscardPolicy.OLD,
        duplicate_window=DUPLICATE_SECONDS,
        num_replicas=replicas,
        storage=StorageType.FILE,
    )
