"""Modules stay under 500 lines and functions under 40: small enough to read in one go."""

import ast
import statistics
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULE_CAP, FUNCTION_CAP, MEDIAN_GOAL = 500, 40, 120


def modules() -> list[Path]:
    return sorted(p for top in ("services", "shared", "gpubus") for p in (ROOT / top).rglob("*.py"))


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(ROOT)))
def test_module_and_its_functions_are_small(path):
    text = path.read_text()
    lines = text.count("\n")
    assert lines <= MODULE_CAP, f"{lines} lines; split it"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or 0) - node.lineno + 1
            assert length <= FUNCTION_CAP, f"{node.name} has {length} lines; split it"


def test_median_module_is_short():
    sizes = [p.read_text().count("\n") for p in modules() if p.name != "__init__.py"]
    assert statistics.median(sizes) <= MEDIAN_GOAL, f"median {statistics.median(sizes)} lines"
