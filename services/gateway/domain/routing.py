"""Which model a name means to a key, and which replica answers. Pure.

Read next: services/gateway/dataplane/asgi.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

from services.gateway.domain.tables import Endpoint, Index, Key, Model

_SHOWN_CHARACTERS = 200


def may_use(key: Key, model: Model) -> bool:
    """Whether a key opens a model: an administrator's any, else those of its namespace, or those it lists there."""
    if key.role == "admin":
        return True
    if model.namespace != key.namespace:
        return False
    return not key.models or model.name in key.models


def find_model(index: Index, key: Key, name: str) -> Model | None:
    """The model a name means: in the key's namespace first, else a name unique among usable ones, else `<ns>/<name>`."""
    own = index.by_place.get((key.namespace, name))
    if own is not None and may_use(key, own):
        return own
    usable = [model for model in index.by_name.get(name, ()) if may_use(key, model)]
    if len(usable) == 1:
        return usable[0]
    namespace, _, rest = name.partition("/")
    placed = index.by_place.get((namespace, rest)) if rest else None
    return placed if placed is not None and may_use(key, placed) else None


def is_ambiguous(index: Index, key: Key, name: str) -> bool:
    """Whether several namespaces serve the name to this key."""
    return sum(may_use(key, model) for model in index.by_name.get(name, ())) > 1


def unknown_model(name: str) -> str:
    """What a caller is told about a name that means nothing to its key; a very long one is cut."""
    shown = name if len(name) <= _SHOWN_CHARACTERS else f"{name[:_SHOWN_CHARACTERS]}…"
    return f"no model {shown!r} is served to this key; see /v1/models"


def usable_models(index: Index, key: Key) -> list[Model]:
    """What /v1/models lists."""
    return sorted((m for m in index.tables.models if may_use(key, m)), key=lambda m: (m.namespace, m.name))


def shown_name(index: Index, key: Key, model: Model) -> str:
    """The name under which a key reaches a model."""
    return model.name if find_model(index, key, model.name) is model else f"{model.namespace}/{model.name}"


def pick(
    endpoints: Sequence[Endpoint], busy: Mapping[Endpoint, int], tried: AbstractSet[Endpoint], turn: int
) -> Endpoint | None:
    """The endpoint with the fewest requests in hand; among equals they take turns. None when all were tried."""
    best: Endpoint | None = None
    least = -1
    count = len(endpoints)
    for offset in range(count):
        endpoint = endpoints[(turn + offset) % count]
        if endpoint in tried:
            continue
        held = busy.get(endpoint, 0)
        if best is None or held < least:
            best, least = endpoint, held
            if held == 0:
                break
    return best
