"""Names, labels and annotations exactly as Kubernetes checks them.

Pure. Read next: shared/store/objects.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from shared.errors import Cause
from shared.resources.base import Metadata

_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN_RE = re.compile(rf"{_LABEL}(\.{_LABEL})*", re.ASCII)
_LABEL_RE = re.compile(_LABEL, re.ASCII)
_WORD_RE = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]", re.ASCII)
_ANNOTATIONS_LIMIT = 256 * 1024
_WORD_LIMIT = 63


@dataclass(frozen=True, slots=True)
class NameFormat:
    """What names of a kind look like."""

    pattern: re.Pattern[str]
    longest: int
    sentence: str

    def problem(self, name: str) -> str:
        """What is wrong with a name; empty when nothing is."""
        if not name:
            return "is required"
        if len(name) > self.longest:
            return f"must be no more than {self.longest} characters"
        return "" if self.pattern.fullmatch(name) else self.sentence


SUBDOMAIN = NameFormat(
    _SUBDOMAIN_RE,
    253,
    "must consist of lower case letters, digits, '-' and '.', and start and end with a letter or digit (RFC 1123 subdomain)",
)
LABEL = NameFormat(
    _LABEL_RE,
    63,
    "must consist of lower case letters, digits and '-', and start and end with a letter or digit (RFC 1123 label)",
)


def metadata_causes(metadata: Metadata, name_format: NameFormat, *, namespaced: bool) -> Iterator[Cause]:
    """Everything wrong with an object's metadata, one cause a field."""
    problem = name_format.problem(metadata.name)
    if problem:
        yield _cause("metadata.name", f"{metadata.name!r} {problem}", required=not metadata.name)
    yield from _namespace_causes(metadata.namespace, namespaced=namespaced)
    for key, value in metadata.labels.items():
        yield from _key_causes("metadata.labels", key)
        if len(value) > _WORD_LIMIT or (value and not _WORD_RE.fullmatch(value)):
            yield _cause(f"metadata.labels[{key}]", f"{value!r} {_WORD_SENTENCE}")
    yield from _annotation_causes(metadata.annotations)
    for finalizer in metadata.finalizers:
        yield from _key_causes("metadata.finalizers", finalizer)
    for position, owner in enumerate(metadata.owner_references):
        if not owner.name or not owner.kind or not owner.uid:
            yield _cause(f"metadata.ownerReferences[{position}]", "needs kind, name and uid", required=True)


def _namespace_causes(namespace: str, *, namespaced: bool) -> Iterator[Cause]:
    if not namespaced:
        if namespace:
            yield Cause("metadata.namespace", "must be empty: this kind is cluster-wide", "FieldValueForbidden")
        return
    problem = LABEL.problem(namespace)
    if problem:
        yield _cause("metadata.namespace", f"{namespace!r} {problem}", required=not namespace)


def _annotation_causes(annotations: Mapping[str, str]) -> Iterator[Cause]:
    for key in annotations:
        yield from _key_causes("metadata.annotations", key.lower())
    if sum(len(key) + len(value) for key, value in annotations.items()) > _ANNOTATIONS_LIMIT:
        yield Cause("metadata.annotations", f"must have at most {_ANNOTATIONS_LIMIT} bytes", "FieldValueTooLong")


_WORD_SENTENCE = (
    "must be at most 63 letters, digits, '-', '_' or '.', and start and end with a letter or digit"  # as Kubernetes
)


def _key_causes(field: str, key: str) -> Iterator[Cause]:
    prefix, slash, word = key.rpartition("/")
    if slash and SUBDOMAIN.problem(prefix):
        yield _cause(field, f"{key!r}: the part before '/' {SUBDOMAIN.problem(prefix)}")
    if not word or len(word) > _WORD_LIMIT or not _WORD_RE.fullmatch(word):
        yield _cause(field, f"{key!r}: the name {_WORD_SENTENCE}")


def _cause(field: str, message: str, *, required: bool = False) -> Cause:
    return Cause(field, message, "FieldValueRequired" if required else "FieldValueInvalid")
