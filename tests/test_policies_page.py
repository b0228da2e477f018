"""docs/policies.md names every policy that there is, and its examples are Python that names what exists."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

from openenv_trl.rollout import policies, scripted
from openenv_trl.rollout.policies import EndpointSettings

PAGE = (Path(__file__).parents[1] / "docs" / "policies.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)


def test_every_policy_is_named() -> None:
    shipped = {name for name in policies.__all__ if name.endswith("Policy") and name != "TokenServerPolicy"}
    shipped |= {name for name in vars(scripted) if re.fullmatch(r"(Scripted|Random)\w*Policy", name)}
    assert {name for name in shipped if f"`{name}`" not in PAGE} == set()


def test_what_the_examples_import_and_set_exists() -> None:
    assert len(EXAMPLES) == 3
    for example in EXAMPLES:
        for node in ast.walk(ast.parse(example)):
            if isinstance(node, ast.ImportFrom):
                module = importlib.import_module(str(node.module))
                assert all(hasattr(module, alias.name) for alias in node.names)
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "EndpointSettings":
                assert {keyword.arg for keyword in node.keywords} <= set(EndpointSettings.model_fields)


def test_the_settings_it_speaks_of_exist() -> None:
    for name in ("away_timeout_s", "busy_timeout_s", "request_timeout_s"):
        assert name in PAGE
        assert name in EndpointSettings.model_fields
