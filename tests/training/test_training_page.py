"""The page on training: its examples are complete, and say what the package takes."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "training.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


def test_there_is_an_example_of_each_way() -> None:
    text = "\n".join(EXAMPLES)
    assert all(word in text for word in ("rollout_func=", "environment_factory=", "reward_funcs="))


@pytest.mark.parametrize("source", EXAMPLES)
def test_an_example_imports_what_it_uses_and_passes_what_is_taken(source: str) -> None:
    tree = ast.parse(source)
    names: dict[str, Any] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            module = importlib.import_module(node.module or "")
            names |= {alias.name: getattr(module, alias.name) for alias in node.names}
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    assert {node.func.id for node in calls} - {"range"} <= set(names)  # type: ignore[union-attr]
    for node in calls:
        called = names.get(node.func.id)  # type: ignore[union-attr]
        if called is None:
            continue
        parameters = inspect.signature(called).parameters
        takes_any = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())
        given = {keyword.arg for keyword in node.keywords if keyword.arg}
        assert takes_any or given <= set(parameters), f"{node.func.id} takes no {given - set(parameters)}"  # type: ignore[union-attr]
