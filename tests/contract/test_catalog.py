"""The catalogue: unique, in grammar, every consumer real, every command handled once."""

import importlib
import inspect
import re

import pytest

from shared import subjects
from shared.bus.router import specs
from shared.messages import catalog
from shared.messages.base import Command, Fact

# Past participles, and the accomplished states of house style.
PAST = re.compile(r"(ed|lost|found|ready|freed|bound|held|unready|available|delivering)$")
FORBIDDEN = re.compile(r"(Event|Message|Msg|Data|Info|Updated?|Process|Handle|Notify|Status|Sync)$")
SERVICES = ("discovery", "scheduler", "modelstore", "kvcache", "deployer", "gateway")


@pytest.mark.parametrize("entry", catalog.FACTS, ids=lambda e: e.message.__name__)
def test_fact_is_named_in_the_past_tense(entry):
    assert issubclass(entry.message, Fact)
    assert PAST.search(entry.message.FACT)
    assert not FORBIDDEN.search(entry.message.__name__)
    assert entry.owner in SERVICES


def test_subject_filters_are_unique():
    filters = [subjects.fact_filter(e.message) for e in catalog.FACTS]
    filters += [subjects.command_filter(e.message) for e in catalog.COMMANDS]

    assert len(filters) == len(set(filters))
    assert all(len(f.split(".")) <= 8 for f in filters)


def test_every_command_has_exactly_one_handler():
    assert all(len(e.consumers) == 1 for e in catalog.COMMANDS)
    assert all(issubclass(e.message, Command) for e in catalog.COMMANDS)


def test_one_aggregate_has_one_owner():
    owners: dict[str, set[str]] = {}
    for entry in catalog.FACTS:
        owners.setdefault(entry.message.AGGREGATE, set()).add(entry.owner)

    assert all(len(names) == 1 for names in owners.values()), owners


@pytest.mark.parametrize("service", SERVICES)
def test_service_registers_exactly_what_the_catalogue_says(service):
    module = importlib.import_module(f"services.{service}.handlers")
    registered = set()
    for _, cls in inspect.getmembers(module, inspect.isclass):
        if cls.__module__ == module.__name__:
            registered |= {(spec.message, spec.handler) for spec in specs(cls) if spec.message in catalog.BY_CLASS}

    wanted = {(e.message, handler) for e, handler in catalog.consumed_by(service)}

    assert registered == wanted


@pytest.mark.parametrize("text", ["a.b", "GPU-5c88", "qwen 模型", "", "x_y", "UPPER", "-"])
def test_token_encoding_is_reversible_and_one_token(text):
    token = subjects.encode(text)

    assert re.fullmatch(r"[a-z0-9_-]+", token)
    assert subjects.decode(token) == text
