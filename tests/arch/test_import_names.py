"""The generic names `shared` and `services` mean ours, whatever else is installed."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", ["shared", "services", "gpubus"])
def test_name_resolves_to_this_checkout(name):
    spec = importlib.util.find_spec(name)

    assert spec is not None
    assert spec.origin is not None
    assert Path(spec.origin).is_relative_to(ROOT)
