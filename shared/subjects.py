"""The subject grammar: the only file that contains a subject string.

Classes: facts `evt`, reports `rep`, commands `cmd`, answered writes `req`, queries `qry`, `wake`, telemetry `tel`,
dead letters `dlq`. Stable tokens first, variable ones last, so permissions and filters are prefixes.
Read next: shared/messages/catalog.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from shared.messages.base import CLUSTER_SCOPE, Command, Fact, Query, Report, Telemetry

ROOT = "gpubus"
MAJOR = "v1"
SERVICES = ("discovery", "scheduler", "modelstore", "kvcache", "deployer", "gateway")

STREAM_REPORTS = "REPORTS"
STREAM_COMMANDS = "COMMANDS"
STREAM_DEAD_LETTERS = "DEADLETTERS"

_PLAIN = re.compile(r"[a-z0-9-]+", re.ASCII)
_ESCAPE = re.compile(r"_([0-9a-f]{2})", re.ASCII)


def encode(token: str) -> str:
    """Any text as one token: `[a-z0-9-]` stay, every other byte becomes `_` and two hex digits; empty becomes `_`."""
    if _PLAIN.fullmatch(token):
        return token
    if token in {"", CLUSTER_SCOPE}:
        return CLUSTER_SCOPE
    return "".join(ch if _PLAIN.fullmatch(ch) else "".join(f"_{b:02x}" for b in ch.encode()) for ch in token)


def decode(token: str) -> str:
    """The reverse of encode; `_` becomes the empty text."""
    if token == CLUSTER_SCOPE:
        return ""
    raw = bytearray()
    position = 0
    for match in _ESCAPE.finditer(token):
        raw += token[position : match.start()].encode()
        raw.append(int(match.group(1), 16))
        position = match.end()
    return (bytes(raw) + token[position:].encode()).decode(errors="replace")


def owner_stream(service: str) -> str:
    """The stream that holds one owner's facts."""
    return f"FACTS_{service.upper()}"


def fact(cls: type[Fact], scope: str, key: str) -> str:
    """Where one fact goes."""
    return f"{ROOT}.evt.{cls.AGGREGATE}.{cls.FACT}.{MAJOR}.{encode(scope)}.{encode(key)}"


def fact_filter(cls: type[Fact]) -> str:
    """All facts of one type."""
    return f"{ROOT}.evt.{cls.AGGREGATE}.{cls.FACT}.{MAJOR}.>"


def aggregate_filter(aggregate: str) -> str:
    """All facts about one aggregate (streams, permissions)."""
    return f"{ROOT}.evt.{aggregate}.>"


def command(cls: type[Command], scope: str, key: str) -> str:
    """Where one command between services goes."""
    return f"{ROOT}.cmd.{cls.SERVICE}.{cls.COMMAND}.{MAJOR}.{encode(scope)}.{encode(key)}"


def command_filter(cls: type[Command]) -> str:
    """All commands of one type."""
    return f"{ROOT}.cmd.{cls.SERVICE}.{cls.COMMAND}.{MAJOR}.>"


def report(cls: type[Report], node: str, key: str = CLUSTER_SCOPE) -> str:
    """Where one node's report goes."""
    return f"{ROOT}.rep.{cls.SERVICE}.{cls.WHAT}.{MAJOR}.{encode(node)}.{encode(key)}"


def report_filter(cls: type[Report]) -> str:
    """All reports of one type."""
    return f"{ROOT}.rep.{cls.SERVICE}.{cls.WHAT}.{MAJOR}.>"


def write_object(owner: str, namespace: str, name: str) -> str:
    """Where an answered write to one owner goes (core NATS, never stored)."""
    return f"{ROOT}.req.{owner}.write-object.{MAJOR}.{encode(namespace)}.{encode(name)}"


def write_object_filter(owner: str) -> str:
    """All answered writes to one owner."""
    return f"{ROOT}.req.{owner}.write-object.{MAJOR}.>"


def user_apply(principal: str, namespace: str, *, stored: bool) -> str:
    """The user's own command: answered (`req`) or stored and run when the system is up (`cmd`)."""
    kind = "cmd" if stored else "req"
    return f"{ROOT}.{kind}.gateway.apply.{MAJOR}.{encode(principal)}.{encode(namespace)}"


def user_apply_filter(*, stored: bool) -> str:
    """All users' commands."""
    return f"{ROOT}.{'cmd' if stored else 'req'}.gateway.apply.{MAJOR}.>"


def query(cls: type[Query], key: str = CLUSTER_SCOPE) -> str:
    """Where a question goes; node questions end in the node."""
    base = f"{ROOT}.qry.{cls.SERVICE}.{cls.QUESTION}.{MAJOR}"
    return base if cls.PER_NODE == "no" else f"{base}.{encode(key)}"


def query_filter(cls: type[Query], key: str = "*") -> str:
    """What an answerer subscribes to."""
    base = f"{ROOT}.qry.{cls.SERVICE}.{cls.QUESTION}.{MAJOR}"
    return base if cls.PER_NODE == "no" else f"{base}.{key if key == '*' else encode(key)}"


def wake(node: str) -> str:
    """A nudge to one node's agents: ask what you should have."""
    return f"{ROOT}.wake.{encode(node)}"


def telemetry(cls: type[Telemetry], source: str) -> str:
    """Where one source's samples go."""
    return f"{ROOT}.tel.{cls.WHAT}.{encode(source)}"


def telemetry_filter(cls: type[Telemetry]) -> str:
    """All samples of one type."""
    return f"{ROOT}.tel.{cls.WHAT}.*"


def dead_letter(service: str, handler: str) -> str:
    """Where a message goes that one handler could not take."""
    return f"{ROOT}.dlq.{service}.{handler.replace('_', '-')}"


def durable(service: str, handler_id: str) -> str:
    """The name of a handler's durable consumer (NATS allows no dot in it)."""
    return f"{service}-{handler_id.replace('_', '-')}"


def redrive(service: str, handler: str) -> str:
    """Where a dead letter goes to be tried again by the one handler that could not take it."""
    return f"{ROOT}.cmd.{service}.redrive.{MAJOR}.{CLUSTER_SCOPE}.{handler.replace('_', '-')}"


def redrive_filter(service: str) -> str:
    """All redrives of one service."""
    return f"{ROOT}.cmd.{service}.redrive.{MAJOR}.>"


def dead_letter_filter(service: str) -> str:
    """All dead letters of one service."""
    return f"{ROOT}.dlq.{service}.>"


def stream_subjects(stream: str, aggregates: Iterable[str] = ()) -> tuple[str, ...]:
    """What one stream stores; an owner's stream stores its aggregates."""
    shared = {STREAM_REPORTS: "rep", STREAM_COMMANDS: "cmd", STREAM_DEAD_LETTERS: "dlq"}
    if stream in shared:
        return (f"{ROOT}.{shared[stream]}.>",)
    return tuple(aggregate_filter(aggregate) for aggregate in sorted(set(aggregates)))


def node_user(node: str) -> str:
    """The NATS user of one node's agents."""
    return f"node-{node}"


def inbox(user: str) -> str:
    """Prefix of one user's inboxes; only that user may listen there."""
    return f"_INBOX_{encode(user)}"


def of_class(kind: str) -> str:
    """Everything of one message class: `evt`, `rep`, `cmd`, `req`, `qry`, `tel`, `dlq`, `wake`."""
    return f"{ROOT}.{kind}.>"


def template(subject: str) -> str:
    """The subject without its variable tail, for metrics and spans: `gpubus.evt.device.found`."""
    tokens = subject.split(".")
    return ".".join(tokens[:2] if tokens[1:2] == ["wake"] else tokens[:3] if tokens[1:2] == ["tel"] else tokens[:4])


def tail(subject: str) -> tuple[str, str]:
    """(scope or node, key) of a stored or answered message's subject, decoded; empty where there is none."""
    tokens = subject.split(".")[5:7]
    scope, key = (*tokens, "", "")[:2]
    return decode(scope), decode(key)
