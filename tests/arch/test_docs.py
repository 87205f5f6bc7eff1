"""Docs a reader relies on exist and say what they promise."""

import ast
from pathlib import Path

import pytest

from shared.messages import catalog

ROOT = Path(__file__).parents[2]
SERVICES = ("discovery", "scheduler", "modelstore", "kvcache", "deployer", "gateway")
HEADINGS = ("Owns", "Listens", "Publishes", "Keys", "Settings", "Failure modes", "Runbook")


def modules() -> list[Path]:
    return sorted(p for top in ("services", "shared", "gpubus") for p in (ROOT / top).rglob("*.py"))


@pytest.mark.parametrize("service", SERVICES)
def test_service_readme_has_the_seven_headings(service):
    text = (ROOT / "services" / service / "README.md").read_text()

    missing = [h for h in HEADINGS if f"\n## {h}\n" not in text]

    assert not missing, f"missing headings: {missing}"
    assert text.count("\n") <= 120, "one page"


@pytest.mark.parametrize("entry", [e for e in catalog.ENTRIES if e in catalog.FACTS], ids=lambda e: e.message.__name__)
def test_fact_says_when_who_and_key(entry):
    doc = entry.message.__doc__ or ""

    assert all(word in doc for word in ("When:", "Who:", "Key:")), f"{entry.message.__name__}: {doc}"


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(ROOT)))
def test_module_has_a_docstring(path):
    assert ast.get_docstring(ast.parse(path.read_text())), "say what it owns and what to read next"


def test_readme_is_short():
    assert (ROOT / "README.md").read_text().count("\n") <= 200
