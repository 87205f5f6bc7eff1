"""Writing a typed model back into a stored document without losing fields this version does not know.

Pure. Read next: shared/store/documents.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

_IDENTITY = ("uid", "id", "type", "name", "key")
"""What tells list elements apart, first match wins: conditions have a type, containers a name, devices an id."""


def patched(body: Mapping[str, Any], model: BaseModel, *, open_parts_replaced: bool = False) -> dict[str, Any]:
    """The body with every field that the model knows set to the model's value, or removed where that is None.

    Unknown fields stay, also inside nested parts and inside list elements that carry an identity. Free-form maps
    (labels, data) and plain lists are replaced whole, and so are parts that allow any field (Pod templates) when
    `open_parts_replaced`: there the model holds everything its writer sent. resourceVersion and empty metadata never enter a body.
    """
    dumped = model.model_dump(mode="json", by_alias=True, exclude_none=True)
    merged = _Merge(open_parts_replaced).model(body, model, dumped)
    metadata = merged.get("metadata")
    if isinstance(metadata, dict):
        metadata.pop("resourceVersion", None)
        merged["metadata"] = {name: value for name, value in metadata.items() if value not in ("", [], {})}
    return merged


@dataclass(frozen=True, slots=True)
class _Merge:
    open_parts_replaced: bool

    def model(self, old: Mapping[str, Any], model: BaseModel, dumped: Mapping[str, Any]) -> dict[str, Any]:
        fields = type(model).model_fields
        known = {info.serialization_alias or info.alias or name: name for name, info in fields.items()}
        replaced = self.open_parts_replaced and type(model).model_config.get("extra") == "allow"
        merged = {} if replaced else {key: value for key, value in old.items() if key not in known}
        for alias, value in dumped.items():
            attribute = getattr(model, known[alias]) if alias in known else None
            merged[alias] = self._value(old.get(alias), attribute, value)
        return merged

    def _value(self, old: Any, attribute: object, dumped: Any) -> Any:
        if isinstance(attribute, BaseModel) and isinstance(old, Mapping):
            return self.model(old, attribute, dumped)
        if isinstance(attribute, Sequence) and not isinstance(attribute, str) and isinstance(old, list):
            return [self._element(old, item, value) for item, value in zip(attribute, dumped, strict=True)]
        return dumped

    def _element(self, old: list[Any], item: object, dumped: Any) -> Any:
        if not isinstance(item, BaseModel):
            return dumped
        mark = next((name for name in _IDENTITY if name in dumped), None)
        if mark is None:
            return dumped
        same = [element for element in old if isinstance(element, Mapping) and element.get(mark) == dumped[mark]]
        return self.model(same[0], item, dumped) if len(same) == 1 else dumped
