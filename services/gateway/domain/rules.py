"""Rules of the kinds that the gateway owns: Namespace, Secret, ConfigMap, Setting, ApiKey.

Pure; the generic write (shared/store/objects.py) calls them. Must not issue keys: handlers do, and bring the hash.
Read next: services/gateway/handlers.py.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from shared.errors import Cause, PermissionDenied, invalid
from shared.events.objects import OBJECT_APPLIED, OBJECT_REMOVED
from shared.events.usage import KeyIssued, KeyRevoked
from shared.messages.base import Fact
from shared.resources.access import SETTINGS, SETTINGS_NAMESPACE, ApiKey, Setting, SettingStatus
from shared.resources.base import Resource
from shared.resources.core import ConfigMap, Namespace, Secret
from shared.store.names import LABEL
from shared.store.rules import Lookup, WriteRules

FINALIZER = "kubernetes"
"""On every Namespace: it goes when its content is gone."""
PROTECTED = ("default", SETTINGS_NAMESPACE)
"""Namespaces that exist from the start and stay."""
_DATA_KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}", re.ASCII)
_DATA_LIMIT = 1024 * 1024
_DURATION = re.compile(r"([0-9]+(ms|s|m|h))+", re.ASCII)
_FORBIDDEN = "FieldValueForbidden"


def check_deletion(kind: str, name: str) -> None:
    """Whether an object may be deleted at all.

    Raises:
        PermissionDenied: the system needs it.
    """
    if kind == "Namespace" and name in PROTECTED:
        raise PermissionDenied(
            f'namespaces "{name}" is forbidden: this namespace may not be deleted',
            (),
            {"kind": "namespaces", "name": name},
        )


def without_key_material(spec: Mapping[str, Any]) -> None:
    """A sender does not choose a key.

    Raises:
        InvalidArgument: it tried.
    """
    for field in ("hash", "prefix"):
        if spec.get(field):
            raise invalid(
                f"spec.{field}", "is set by the gateway; leave it out, the key is shown once in the answer", _FORBIDDEN
            )


def _object_facts(old: Resource | None, new: Resource | None) -> tuple[Fact, ...]:
    subject = new or old
    assert subject is not None, "a write has an object before or after it"
    removed = new is None or (new.deleting and (old is None or not old.deleting))
    if (
        not removed
        and old is not None
        and old.metadata.generation == subject.metadata.generation
        and _content(old) == _content(subject)
    ):
        return ()
    cls = OBJECT_REMOVED["gateway"] if removed else OBJECT_APPLIED["gateway"]
    fact = cls(
        kind=subject.kind,
        namespace=subject.namespace,
        name=subject.name,
        uid=subject.uid,
        generation=subject.metadata.generation,
    )
    return (fact,)


def _content(resource: Resource) -> Any:
    """Everything but metadata and status; labels count for a Namespace's readers, so they are added."""
    return resource.model_dump(exclude={"metadata", "status"}), resource.metadata.labels


# Namespace


def _namespace_default(namespace: Namespace) -> Namespace:
    finalizers = list(dict.fromkeys((*namespace.metadata.finalizers, FINALIZER)))
    return namespace.model_copy(update={"metadata": namespace.metadata.model_copy(update={"finalizers": finalizers})})


# Secret, ConfigMap


def _secret_default(secret: Secret) -> Secret:
    encoded = {key: base64.b64encode(value.encode()).decode() for key, value in (secret.string_data or {}).items()}
    return secret.model_copy(
        update={"data": {**secret.data, **encoded}, "string_data": None, "type": secret.type or "Opaque"}
    )


def _secret_causes(new: Secret, old: Secret | None, lookup: Lookup) -> list[Cause]:  # noqa: ARG001
    causes = list(_data_causes({"data": new.data}))
    for key, value in new.data.items():
        try:
            base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            causes.append(Cause(f"data[{key}]", "is not base64; plain text goes into stringData"))
    if old is not None and new.type != old.type:
        causes.append(Cause("type", "is immutable", _FORBIDDEN))
    return [*causes, *_immutable_causes(new, old)]


def _config_map_causes(new: ConfigMap, old: ConfigMap | None, lookup: Lookup) -> list[Cause]:  # noqa: ARG001
    causes = list(_data_causes({"data": new.data, "binaryData": new.binary_data or {}}))
    twice = sorted(set(new.data) & set(new.binary_data or {}))
    causes += [Cause(f"data[{key}]", "is in binaryData too") for key in twice]
    return [*causes, *_immutable_causes(new, old)]


def _data_causes(maps: Mapping[str, Mapping[str, str]]) -> Iterator[Cause]:
    for field, values in maps.items():
        for key in values:
            if not _DATA_KEY.fullmatch(key) or key in {".", ".."}:
                yield Cause(f"{field}[{key[:80]}]", "a key has letters, digits, '-', '_' or '.', at most 253")
    if sum(len(value) for values in maps.values() for value in values.values()) > _DATA_LIMIT:
        yield Cause("data", f"must have at most {_DATA_LIMIT} bytes", "FieldValueTooLong")


def _immutable_causes(new: Any, old: Any) -> list[Cause]:
    if old is None or not old.immutable:
        return []
    causes = [] if new.immutable else [Cause("immutable", "cannot be taken back", _FORBIDDEN)]
    names = ("data", "binary_data") if isinstance(new, ConfigMap) else ("data",)
    changed = any(getattr(new, name) != getattr(old, name) for name in names)
    return [*causes, Cause("data", "is immutable: the object says so", _FORBIDDEN)] if changed else causes


# Setting


def _setting_default(setting: Setting) -> Setting:
    status = SettingStatus(value=setting.spec.value, default=SETTINGS.get(setting.name, ""))
    return setting.model_copy(update={"status": status})


def _setting_causes(new: Setting, old: Setting | None, lookup: Lookup) -> list[Cause]:  # noqa: ARG001
    if new.namespace != SETTINGS_NAMESPACE:
        return [Cause("metadata.namespace", f"settings live in {SETTINGS_NAMESPACE}")]
    if new.name not in SETTINGS:
        return [Cause("metadata.name", f"no such setting; the catalogue has {', '.join(sorted(SETTINGS))}")]
    check = _CHECKS.get(new.name) or _CHECKS_BY_DEFAULT.get(SETTINGS[new.name])
    problem = check(new.spec.value) if check is not None else ""
    return [Cause("spec.value", problem)] if problem else []


def _boolean(value: str) -> str:
    return "" if value in {"true", "false"} else 'must be "true" or "false"'


def _number(low: int, high: int) -> Callable[[str], str]:
    def check(value: str) -> str:
        plain = value.isascii() and value.isdigit() and len(value) < 20
        return "" if plain and low <= int(value) <= high else f"must be a whole number from {low} to {high}"

    return check


def _one_of(*words: str) -> Callable[[str], str]:
    return lambda value: "" if value in words else f"must be one of {', '.join(word or '(empty)' for word in words)}"


def _duration(value: str) -> str:
    return "" if _DURATION.fullmatch(value) else "must be a duration such as 30s, 15m or 24h"


def _url(value: str, *, optional: bool = False) -> str:
    if optional and not value:
        return ""
    if any(ord(char) <= 32 or ord(char) == 127 for char in value):
        return "must not have blanks or control characters"
    try:
        parts = urlsplit(value)
        host = parts.hostname or ""
        _ = parts.port
    except ValueError:
        return "is not a URL"
    if parts.scheme not in {"http", "https"} or not host:
        return "must be http://… or https://…"
    if parts.username is not None or parts.password is not None:
        return "must not carry a user or password; put credentials into a Secret"
    if host.startswith("169.254.") or host in {"metadata.google.internal", "fe80::", "[fe80::]"}:
        return "must not point at a link-local address"
    return ""


def _optional_url(value: str) -> str:
    return _url(value, optional=True)


_CHECKS: Mapping[str, Callable[[str], str]] = {
    "image-pull-policy": _one_of("", "Always", "IfNotPresent", "Never"),
    "model-artifact-huggingface-endpoint": _url,
    "model-artifact-modelscope-endpoint": _url,
    "model-artifact-https-proxy": _optional_url,
    "model-artifact-revalidate-interval": _duration,
    "model-artifact-delivery-mode": _one_of("Node", "Engine"),
    "model-store-high-watermark": _number(2, 95),
    "model-store-low-watermark": _number(1, 94),
    "model-store-download-concurrency": _number(1, 64),
    "model-store-download-bandwidth": _number(0, 2**62),
}
_CHECKS_BY_DEFAULT: Mapping[str, Callable[[str], str]] = {"true": _boolean, "false": _boolean}


# ApiKey


def _key_causes(new: ApiKey, old: ApiKey | None, lookup: Lookup) -> list[Cause]:  # noqa: ARG001
    causes = [
        Cause(f"spec.models[{n}]", "must not be empty") for n, model in enumerate(new.spec.models) if not model.strip()
    ]
    if old is not None:
        changed = [f for f in ("hash", "prefix") if getattr(new.spec, f) != getattr(old.spec, f)]
        causes += [Cause(f"spec.{field}", "is immutable", _FORBIDDEN) for field in changed]
    return causes


def _key_facts(old: ApiKey | None, new: ApiKey | None) -> tuple[Fact, ...]:
    if new is None:
        assert old is not None, "a write has an object before or after it"
        return (KeyRevoked(namespace=old.namespace, name=old.name, uid=old.uid, reason="Deleted"),)
    if old is not None and old.spec == new.spec and old.deleting == new.deleting:
        return ()
    if new.spec.disabled or new.deleting:
        reason = "Deleted" if new.deleting else "Disabled"
        return (KeyRevoked(namespace=new.namespace, name=new.name, uid=new.uid, reason=reason),)
    # Also when its rights changed: whoever holds a table of keys looks at it again.
    return (KeyIssued(namespace=new.namespace, name=new.name, uid=new.uid, prefix=new.spec.prefix),)


RULES: Mapping[str, WriteRules] = {
    rules.kind: rules
    for rules in (
        WriteRules(
            kind="Namespace", default=_namespace_default, facts=_object_facts, finalizers=(FINALIZER,), names=LABEL
        ),
        WriteRules(kind="Secret", default=_secret_default, validate=_secret_causes, facts=_object_facts),
        WriteRules(kind="ConfigMap", validate=_config_map_causes, facts=_object_facts),
        WriteRules(kind="Setting", default=_setting_default, validate=_setting_causes, facts=_object_facts),
        WriteRules(kind="ApiKey", validate=_key_causes, facts=_key_facts),
    )
}
