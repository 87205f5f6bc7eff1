"""Who may say and hear what on NATS: computed from the catalogue, nothing granted by hand.

Pure; `nats_config` renders the text that goes into a server's configuration. Must not do I/O.
Read next: contracts in docs/architecture.md; tests/integration/bus/test_permissions.py proves them on a server.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from shared import subjects
from shared.bus.exhausted import advisory
from shared.bus.streams import ADMIN, durables_of
from shared.errors import invalid
from shared.messages import catalog
from shared.messages.base import Fact, Query, Telemetry
from shared.queries import Heartbeat

FLEET = "fleet"
"""The one process that speaks for all simulated nodes."""
NODE_PREFIX = subjects.node_user("")
AGENT_SERVICES = frozenset(
    e.owner for e in catalog.QUERIES if issubclass(e.message, Query) and e.message.PER_NODE == "asker"
)
"""Services that have agents, whom they may wake."""


@dataclass(frozen=True, slots=True)
class Permissions:
    """One user's allow lists; everything else is refused by the server."""

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]
    answers: bool = True
    """May answer what it is asked, once per request, wherever the asker listens."""


def of_service(service: str, principals: Iterable[str] = ()) -> Permissions:
    """A controller: its own facts, commands to others, its durables, questions, its inbox.

    Args:
        service: One of the six.
        principals: Users on the bus; only the gateway answers them.
    """
    publish = {
        *(subjects.fact_filter(e.message) for e in catalog.facts_of(service) if issubclass(e.message, Fact)),
        *(subjects.command_filter(e.message) for e in catalog.COMMANDS),  # type: ignore[arg-type]
        *(subjects.query_filter(e.message) for e in catalog.QUERIES),  # type: ignore[arg-type]
        f"{subjects.dead_letter_filter(service)}",
        *_own_stream(service),
        *_durable_publishes(service),
    }
    subscribe = {f"{subjects.inbox(service)}.>", *_questions_to(service), *_telemetry_to(service)}
    subscribe |= {subjects.write_object_filter(service)}
    subscribe |= {advisory(durable.stream, durable.name) for durable in durables_of(service)}
    if service == "gateway":
        publish |= {subjects.write_object_filter(owner) for owner in subjects.SERVICES}
        publish |= {f"{subjects.inbox(principal)}.>" for principal in principals}
        subscribe |= {subjects.of_class("evt"), subjects.user_apply_filter(stored=False)}
        subscribe |= {subjects.telemetry_filter(e.message) for e in catalog.TELEMETRY}  # type: ignore[arg-type]
    if service in AGENT_SERVICES:
        publish |= {subjects.of_class("wake")}
    return _sorted(publish, subscribe)


def of_node(node: str) -> Permissions:
    """One node's agents: reports and telemetry of this node, its questions, its wake subject; no JetStream API at all."""
    publish, subscribe = _node(node)
    return _sorted(publish, subscribe | {f"{subjects.inbox(subjects.node_user(node))}.>"})


def of_fleet(nodes: Iterable[str]) -> Permissions:
    """The process of the simulated nodes: what each of them may."""
    publish: set[str] = {subjects.telemetry(Heartbeat, FLEET)}  # one batch for all of them
    subscribe: set[str] = {f"{subjects.inbox(FLEET)}.>"}
    for node in nodes:
        node_publish, node_subscribe = _node(node)
        publish |= node_publish
        subscribe |= node_subscribe
    return _sorted(publish, subscribe)


def of_principal(principal: str) -> Permissions:
    """A user on the bus: its own commands, and facts to watch.

    Raises:
        InvalidArgument: the name is a service's, the admin's, or looks like a node's.
    """
    if principal in {*subjects.SERVICES, ADMIN, FLEET} or principal.startswith(NODE_PREFIX) or not principal:
        raise invalid("principal", f"{principal!r} is reserved; choose another name")
    stored, answered = (subjects.user_apply(principal, "", stored=kind) for kind in (True, False))
    publish = {f"{subject.rpartition('.')[0]}.*" for subject in (stored, answered)}
    return _sorted(publish, {f"{subjects.inbox(principal)}.>", subjects.of_class("evt")}, answers=False)


def of_admin() -> Permissions:
    """The migrator and the command line: everything."""
    return Permissions((">",), (">",), answers=False)


def all_users(
    keys: Mapping[str, str], *, fleet_nodes: Iterable[str] = (), principals: Iterable[str] = ()
) -> dict[str, Permissions]:
    """The permissions of each user that has a key, by the user's name.

    Raises:
        InvalidArgument: a principal's name is reserved.
    """
    known = tuple(principals)
    users: dict[str, Permissions] = {}
    for user in keys:
        if user == ADMIN:
            users[user] = of_admin()
        elif user == FLEET:
            users[user] = of_fleet(fleet_nodes)
        elif user in subjects.SERVICES:
            users[user] = of_service(user, known)
        elif user.startswith(NODE_PREFIX):
            users[user] = of_node(user.removeprefix(NODE_PREFIX))
        else:
            users[user] = of_principal(user)
    return users


def nats_config(keys: Mapping[str, str], *, fleet_nodes: Iterable[str] = (), principals: Iterable[str] = ()) -> str:
    """The `authorization` block of a server's configuration; reloadable.

    Args:
        keys: User name (`scheduler`, `node-<name>`, `fleet`, `admin`, a principal) -> public NKey.
        fleet_nodes: Nodes that the fleet process speaks for.
        principals: Users on the bus, whom the gateway answers; they need a key too.

    Raises:
        InvalidArgument: a principal's name is reserved.
    """
    users = all_users(keys, fleet_nodes=fleet_nodes, principals=principals)
    blocks = "\n".join(_user_block(name, keys[name], users[name]) for name in sorted(users))
    return f"authorization {{\n  users: [\n{blocks}\n  ]\n}}\n"


def _user_block(name: str, key: str, permissions: Permissions) -> str:
    answers = '      allow_responses: { max: 1, expires: "1m" }\n' if permissions.answers else ""
    return (
        f"    # {subjects.encode(name)}\n"
        f"    {{ nkey: {key}, permissions: {{\n"
        f"      publish: {{ allow: {_list(permissions.publish)} }}\n"
        f"      subscribe: {{ allow: {_list(permissions.subscribe)} }}\n"
        f"{answers}    }} }}"
    )


def _list(items: Iterable[str]) -> str:
    return "[" + ", ".join(f'"{item}"' for item in items) + "]"


def _own_stream(service: str) -> set[str]:
    """The relay looks at its own stream (and the shared command stream's state) to know what survived."""
    own = subjects.owner_stream(service)
    states = {f"$JS.API.STREAM.INFO.{name}" for name in (own, subjects.STREAM_COMMANDS)}
    return states | {f"$JS.API.STREAM.MSG.GET.{own}"}


def _durable_publishes(service: str) -> set[str]:
    """Pull and acknowledge its durables; read back a message whose deliveries are used up."""
    allowed: set[str] = set()
    for durable in durables_of(service):
        allowed |= {
            f"$JS.API.CONSUMER.MSG.NEXT.{durable.stream}.{durable.name}",
            f"$JS.ACK.{durable.stream}.{durable.name}.>",
            f"$JS.API.STREAM.MSG.GET.{durable.stream}",
        }
    return allowed


def _questions_to(service: str) -> set[str]:
    found: set[str] = set()
    for entry in catalog.QUERIES:
        if entry.owner == service and issubclass(entry.message, Query) and entry.message.PER_NODE != "answerer":
            found.add(subjects.query_filter(entry.message))
    return found


def _telemetry_to(service: str) -> set[str]:
    return {
        subjects.telemetry_filter(entry.message)
        for entry, _ in catalog.consumed_by(service)
        if issubclass(entry.message, Telemetry)
    }


def _node(node: str) -> tuple[set[str], set[str]]:
    publish = {f"{subjects.report(e.message, node).rpartition('.')[0]}.*" for e in catalog.REPORTS}  # type: ignore[arg-type]
    publish |= {subjects.telemetry(e.message, node) for e in catalog.TELEMETRY}  # type: ignore[arg-type]
    subscribe = {subjects.wake(node)}
    for entry in catalog.QUERIES:
        assert issubclass(entry.message, Query), "the catalogue lists queries here"
        if entry.message.PER_NODE == "asker":
            publish.add(subjects.query(entry.message, node))
        elif entry.message.PER_NODE == "answerer":
            subscribe.add(subjects.query_filter(entry.message, node))
    return publish, subscribe


def _sorted(publish: set[str], subscribe: set[str], *, answers: bool = True) -> Permissions:
    return Permissions(tuple(sorted(publish)), tuple(sorted(subscribe)), answers)
