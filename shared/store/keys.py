"""Every Redis key of the system: no other file contains a key string.

All keys share one hash tag, so that one script may touch any of them on a clustered server.
Must not do I/O. Read next: shared/store/acl.py, which grants them.
"""

from __future__ import annotations

PREFIX = "{gpubus}:"

META = f"{PREFIX}meta"
"""Hash: epoch, run_id, revision (the last one given out), log_floor, gaps."""
LOG = f"{PREFIX}log"
"""Stream: one entry per written document, id = revision."""


def doc(kind: str, namespace: str, name: str) -> str:
    """Hash of one document: rev, uid, schema, labels, body."""
    return f"{PREFIX}doc:{kind}:{namespace}/{name}"


def member(namespace: str, name: str) -> str:
    """One document's entry in its kind's index."""
    return f"{namespace}/{name}"


def index(kind: str) -> str:
    """Sorted set of the documents of one kind, in lexicographic order."""
    return f"{PREFIX}index:{kind}"


def ledger(node: str) -> str:
    """Hash of what is used on one node: `epoch`, `<device id>` credits, `cpu` millicores, `memory` bytes."""
    return f"{PREFIX}ledger:{node}"


def lease(service: str, name: str) -> str:
    """Hash of one lease among a service's copies: nonce, fencing, holder, epoch, expires, renewed (Redis microseconds)."""
    return f"{PREFIX}lease:{service}:{name}"


def outbox(service: str) -> str:
    """Stream of facts and commands that one service committed."""
    return f"{PREFIX}outbox:{service}"


def outbox_account(service: str) -> str:
    """Hash: bytes and entries ever put into the outbox, and how many of them are acknowledged."""
    return f"{PREFIX}outbox-account:{service}"


def outbox_checkpoints(service: str) -> str:
    """Sorted set of (entry, stream creation time, stream sequence, time), scored by the entry's revision."""
    return f"{PREFIX}outbox-checkpoints:{service}"


def inbox_prefix(service: str, handler: str) -> str:
    """Start of a handler's inbox keys; the script adds the five-minute bucket."""
    return f"{PREFIX}inbox:{service}:{handler}:"


def recent(service: str, boot: str) -> str:
    """Hash of one process's latest commits by slot, so that a commit whose answer was lost is not made twice."""
    return f"{PREFIX}recent:{service}:{boot}"


def manifest(digest: str) -> str:
    """Blob (hash with field `body`): one resolved weights manifest."""
    return f"{PREFIX}manifest:{digest}"


def table(service: str, name: str) -> str:
    """A service's own hash that is no document: counters, slices, usage."""
    return f"{PREFIX}table:{service}:{name}"
