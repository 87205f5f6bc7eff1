"""Which models are contract, and a full sample of each (every optional field filled)."""

from datetime import UTC, datetime
from typing import Any, get_args, get_origin

from pydantic import BaseModel

from shared.commands.objects import WriteAnswer, WriteObject
from shared.envelope import Envelope
from shared.messages import catalog
from shared.messages.base import Query
from shared.resources.kinds import KINDS

MODELS: dict[str, type[BaseModel]] = {
    **{catalog.type_name(e.message): e.message for e in catalog.ENTRIES},
    **{
        catalog.type_name(e.message) + ".answer": e.message.ANSWER
        for e in catalog.QUERIES
        if issubclass(e.message, Query)
    },
    **{f"kind.{name.lower()}": kind.model for name, kind in KINDS.items()},
    "gpubus.envelope": Envelope,
    "gpubus.write-object": WriteObject,
    "gpubus.write-answer": WriteAnswer,
}

SPECIAL: dict[str, Any] = {
    "repository": "owner/name",
    "revision": "main",
    "expectedDigest": "sha256:" + "0" * 64,
    "reference": "example.test/image@sha256:" + "0" * 64,
    "dtype": "bfloat16",
    "data": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIA== you@host",
    "finished": "Failed",
}
QUANTITIES = {"cpu", "ram", "limits", "requests", "allocatable", "total", "ceiling", "resourceUsage", "accelerator"}
ONE_OF = {"ArtifactSource": "hugging_face", "StoreConnection": "managed"}


def sample(model: type[BaseModel]) -> dict[str, Any]:
    """A JSON body with every field present that the model takes."""
    body = {}
    for name, info in model.model_fields.items():
        chosen = ONE_OF.get(model.__name__)
        if chosen is not None and name != chosen:
            continue
        alias = info.alias or name
        body[alias] = _special(alias, info.annotation) or _value(info.annotation, alias)
    return body


def _special(alias: str, annotation: Any) -> Any:
    plain = annotation is str or (str in get_args(annotation) and get_origin(annotation) not in {dict, list})
    return SPECIAL.get(alias) if plain else None


def _value(annotation: Any, name: str) -> Any:
    origin, args = get_origin(annotation), [a for a in get_args(annotation) if a is not type(None)]
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return sample(annotation)
    if origin is list:
        return [_value(args[0], name)]
    if origin is dict:
        return {"key": _value(args[1], name)} if args else {}
    if str(origin) == "typing.Literal":
        return next((a for a in args if a), args[0])
    if args:
        return _value(args[0], name)
    return _scalar(annotation, name)


def _scalar(annotation: Any, name: str) -> Any:
    if annotation is bool:
        return True
    if annotation is int:
        return 1
    if annotation is float:
        return 1.5
    if annotation is datetime:
        return datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC).isoformat().replace("+00:00", "Z")
    if annotation is str:
        return "1" if name in QUANTITIES or "apacity" in name or "ize" in name or "torage" in name else "a"
    return "a"
