"""`gpubus describe`, `why`, `logs`: what one object is, why a workload waits or where it runs, what a Pod says.

Must not change anything. Read next: gpubus/resources.py.
"""

from __future__ import annotations

from typing import Any

from gpubus.kinds import ServedKind, named, served
from gpubus.refusal import Refusal
from gpubus.resources import targets, yaml_text
from gpubus.rest import Api, connect
from gpubus.terminal import paint, table

_NO_EXPLANATION = (400, 403, 404, 405, 429, 500, 501, 503, 504)
_DEPLOYMENT = "app.kubernetes.io/instance"


def describe(word: str, name: str, namespace: str, data_dir: str) -> None:
    """Print everything about one object: metadata, spec, status, conditions, its Events.

    Raises:
        Refusal: it does not exist.
    """
    api = connect(data_dir)
    (kind, *_), name = targets(api, word, name)
    if not name:
        raise Refusal(f"Say which {kind.singular or kind.plural} to describe.")
    space = namespace or "default" if kind.namespaced else ""
    _, body = api.call("GET", kind.path(space, name))
    metadata = body.get("metadata", {})
    print(f"Name:         {metadata.get('name')}")
    if space:
        print(f"Namespace:    {metadata.get('namespace', space)}")
    for title in ("labels", "annotations"):
        for number, (key, value) in enumerate(sorted((metadata.get(title) or {}).items())):
            print(f"{title.capitalize() + ':' if number == 0 else '':<13} {key}={value}")
    print(f"API Version:  {body.get('apiVersion')}\nKind:         {body.get('kind')}")
    print(f"Created:      {metadata.get('creationTimestamp', '')}\nRevision:     {metadata.get('resourceVersion', '')}")
    _print_parts(body)
    _print_events(api, kind, body, space)


def _print_parts(body: dict[str, Any]) -> None:
    shown = {key: value for key, value in body.items() if key not in {"apiVersion", "kind", "metadata", "status"}}
    status = dict(body.get("status") or {})
    conditions = status.pop("conditions", [])
    for title, part in (*shown.items(), ("status", status)):
        if part:
            print(f"{title[:1].upper()}{title[1:]}:")
            print("\n".join(f"  {line}" for line in yaml_text(part).splitlines()))
    if conditions:
        rows = [
            [str(one.get(key, "")) for key in ("type", "status", "reason", "lastTransitionTime", "message")]
            for one in conditions
        ]
        print("Conditions:")
        print(
            "\n".join(
                f"  {line}" for line in table(("TYPE", "STATUS", "REASON", "SINCE", "MESSAGE"), rows).splitlines()
            )
        )


def _print_events(api: Api, kind: ServedKind, body: dict[str, Any], space: str) -> None:
    metadata = body.get("metadata", {})
    query = {"fieldSelector": f"involvedObject.name={metadata.get('name')},involvedObject.kind={kind.kind}"}
    status, found = api.call(
        "GET", f"/api/v1/namespaces/{space or 'default'}/events", query=query, fine=(400, 404, 405)
    )
    items = found.get("items", ()) if status == 200 and isinstance(found, dict) else ()
    rows = [[str(one.get(key, "")) for key in ("lastTimestamp", "type", "reason", "message")] for one in items]
    if rows:
        print("Events:")
        print("\n".join(f"  {line}" for line in table(("LAST", "TYPE", "REASON", "MESSAGE"), rows).splitlines()))


def why(name: str, namespace: str, data_dir: str) -> None:
    """Say in plain words why a workload waits, or where it was admitted; a deployment's name means its workloads.

    Raises:
        Refusal: there is no workload or deployment of that name.
    """
    api, space = connect(data_dir), namespace or "default"
    (kind,) = named(served(api), "workloads")
    workloads = _workloads(api, kind, name.rpartition("/")[2], space)
    for number, workload in enumerate(workloads):
        print(("\n" if number else "") + sentence(workload))
        for line in _node_by_node(api, kind, workload):
            print(f"  {line}")


def _workloads(api: Api, kind: ServedKind, name: str, space: str) -> list[dict[str, Any]]:
    status, body = api.call("GET", kind.path(space, name), fine=(404,))
    if status == 200:
        return [body]
    _, everything = api.call("GET", kind.path(space))
    mine = [one for one in everything.get("items", ()) if _belongs(one, name)]
    if not mine:
        raise Refusal(
            f"There is no workload {name} in namespace {space}, nor a deployment or Pod with workloads of that name."
        )
    return mine


def _belongs(workload: dict[str, Any], name: str) -> bool:
    metadata = workload.get("metadata", {})
    owners = {owner.get("name") for owner in metadata.get("ownerReferences") or ()}
    return name in owners or (metadata.get("labels") or {}).get(_DEPLOYMENT) == name


def sentence(workload: dict[str, Any]) -> str:
    """One workload's state in words, from its conditions."""
    metadata, status = workload.get("metadata", {}), workload.get("status") or {}
    about = f"{metadata.get('namespace')}/{metadata.get('name')}"
    conditions = {one.get("type"): one for one in status.get("conditions") or ()}
    for kind, word in (("Finished", "has finished"), ("Evicted", "was evicted")):
        if (conditions.get(kind) or {}).get("status") == "True":
            return f"{paint(about, 'bold')} {word}{_because(conditions[kind])}"
    assigned = (status.get("admission") or {}).get("podSetAssignments") or ()
    if assigned:
        return f"{paint(about, 'bold')} is admitted: {'; '.join(_place(one) for one in assigned)}."
    reserved = conditions.get("QuotaReserved") or conditions.get("Admitted") or {}
    queue = (workload.get("spec") or {}).get("queueName", "")
    return f"{paint(about, 'bold')} waits at {queue}{_because(reserved) or ': it has not been looked at yet.'}"


def _because(condition: dict[str, Any]) -> str:
    reason, message = condition.get("reason", ""), condition.get("message", "")
    return f" ({reason}): {message}" if message else f" ({reason})." if reason else ""


def _place(assignment: dict[str, Any]) -> str:
    devices = assignment.get("devices") or ()
    held = f"devices {', '.join(devices)}" if devices else f"{assignment.get('cpuMilli', 0) / 1000:g} cores"
    return f"node {assignment.get('nodeName')}, {held} of {assignment.get('pool')}"


def _node_by_node(api: Api, kind: ServedKind, workload: dict[str, Any]) -> list[str]:
    """What the scheduler says when asked; nothing when it cannot be reached: the conditions have been printed."""
    metadata = workload.get("metadata", {})
    path = kind.path(str(metadata.get("namespace")), str(metadata.get("name")), "explain")
    status, answer = api.call("GET", path, fine=_NO_EXPLANATION)
    return explained(answer) if status == 200 and isinstance(answer, dict) else []


def explained(answer: dict[str, Any]) -> list[str]:
    """A placement explanation (its JSON): the place in the queue, then a node a line."""
    position = answer.get("queuePosition")
    lines = [f"place {position} in its queue"] if position is not None else []
    for node in answer.get("nodes") or ():
        fits = "chosen" if node.get("chosen") else "fits" if node.get("fits") else "no"
        score = (
            f" (score {node['score']:.2f})" if isinstance(node.get("score"), int | float) and node.get("fits") else ""
        )
        colour = "yellow" if fits == "no" else "green"
        lines.append(f"{node.get('node', ''):<32} {paint(fits, colour)}{score} {node.get('reason', '')}".rstrip())
    return lines


def logs(pod: str, namespace: str, *, follow: bool, previous: bool, lines: int, data_dir: str) -> None:
    """Print a Pod's log; with `follow` until the Pod ends or you interrupt.

    Raises:
        Refusal: there is no such Pod.
    """
    api = connect(data_dir)
    (kind,) = named(served(api), "pods")
    query = (
        {"tailLines": str(lines)} | ({"follow": "true"} if follow else {}) | ({"previous": "true"} if previous else {})
    )
    for line in api.lines(
        kind.path(namespace or "default", pod.removeprefix("pod/").removeprefix("pods/"), "log"),
        query=query,
        accept="*/*",
    ):
        print(line.decode(errors="replace"), end="", flush=True)
