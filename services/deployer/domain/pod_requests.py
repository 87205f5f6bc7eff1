"""What one Pod's containers may ask for, checked when the Pod is written, so that its Workload is not refused later.

The rules of the reference's section 3.3 that concern one container, and Kubernetes' own. Pure. Read next: rules_pod.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction

from services.deployer.domain.accelerators import BASE_KEYS
from shared.errors import Cause
from shared.resources.core import Container
from shared.units import QuantityError, parse_count, parse_milli

FORBIDDEN, REQUIRED = "FieldValueForbidden", "FieldValueRequired"
Parse = Callable[[str], int | Fraction]
_STANDARD: dict[str, Parse] = {"cpu": parse_milli, "memory": parse_count, "ephemeral-storage": parse_count}
_FORMS = ("sliced", "shared", "partitioned")
WHOLE = "exclusive"


def request_causes(containers: Sequence[Container], at: str) -> Iterator[Cause]:
    """Everything wrong with the resources of some containers; `at` is where their list stands."""
    claims: set[tuple[str, str]] = set()
    for position, container in enumerate(containers):
        yield from _container(container, f"{at}[{position}].resources")
        claims |= {claim for key in container.resources.limits if (claim := _claim(key)) is not None}
    makers, forms = sorted({maker for maker, _ in claims}), sorted({form for _, form in claims})
    if len(makers) > 1:
        yield Cause("spec", f"cards of one manufacturer per Pod, found [{' '.join(makers)}]", FORBIDDEN)
    if len(forms) > 1:
        yield Cause("spec", f"cards in one form per Pod, found [{' '.join(forms)}]", FORBIDDEN)


def _container(container: Container, at: str) -> Iterator[Cause]:
    limits, requests = container.resources.limits, container.resources.requests
    for key in sorted({*limits, *requests}):
        if key in _STANDARD:
            yield from _standard(key, limits.get(key), requests.get(key), at)
        elif "/" not in key:
            yield Cause(f"{at}.limits[{key}]", "is no standard resource; extended ones are written vendor/name")
        else:
            yield from _extended(key, limits.get(key), requests.get(key), at)


def _standard(key: str, limit: str | None, request: str | None, at: str) -> Iterator[Cause]:
    parse, values = _STANDARD[key], {}
    for part, text in (("limits", limit), ("requests", request)):
        value, problem = _parsed(parse, text)
        if problem:
            yield Cause(f"{at}.{part}[{key}]", problem)
            return
        values[part] = value
    if values["limits"] is not None and values["requests"] is not None and values["requests"] > values["limits"]:
        yield Cause(f"{at}.requests[{key}]", f"is {request}, must not be over the limit {limit}")


def _extended(key: str, limit: str | None, request: str | None, at: str) -> Iterator[Cause]:
    if limit is None:
        yield Cause(f"{at}.limits[{key}]", "a limit must be set; requests alone do not reserve cards", REQUIRED)
        return
    most, problem = _parsed(parse_count, limit)
    asked, other = _parsed(parse_count, request)
    if problem:
        hint = "; for a part of a card ask for a slice" if "whole number" in problem else ""
        yield Cause(f"{at}.limits[{key}]", f"{problem}{hint}")
    elif other:
        yield Cause(f"{at}.requests[{key}]", other)
    elif asked is not None and asked != most:
        yield Cause(f"{at}.requests[{key}]", f"is {request}, must equal the limit {limit}")


def _parsed(parse: Parse, text: str | None) -> tuple[int | Fraction | None, str]:
    if text is None:
        return None, ""
    try:
        return parse(text), ""
    except QuantityError as error:
        return None, str(error)


def _claim(key: str) -> tuple[str, str] | None:
    """(maker, form) of a key that asks for cards."""
    for maker, base in BASE_KEYS.items():
        if key == base:
            return maker, WHOLE
        rest = key.removeprefix(f"{base}.")
        form = rest.split(".", 1)[0]
        if rest != key and form in _FORMS:
            return maker, form
    return None
