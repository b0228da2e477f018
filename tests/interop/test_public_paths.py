"""What the public package has at each of its module paths is at ours too, or its import says what to use instead."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

# Their own names, and those of the package that they import from one another; not names that begin with "_".
LISTING = """
import importlib, json, pkgutil, sys
import openenv.core
listed = {}
for each in pkgutil.walk_packages(openenv.core.__path__, "openenv.core."):
    if each.name.startswith(tuple(json.loads(sys.argv[1]))):
        listed[each.name] = sorted(
            name for name, value in vars(importlib.import_module(each.name)).items()
            if not name.startswith("_") and str(getattr(value, "__module__", "")).startswith("openenv.")
        )
listed["openenv.core"] = openenv.core.__all__
listed["openenv.core.env_server"] = openenv.core.env_server.__all__
print(json.dumps(listed))
"""
MODULES = (
    "openenv.core.client_types",
    "openenv.core.env_client",
    "openenv.core.env_server",
    "openenv.core.generic_client",
    "openenv.core.llm_client",
    "openenv.core.mcp_client",
    "openenv.core.rubrics",
    "openenv.core.sync_client",
    "openenv.core.utils",
)
TYPE_VARIABLES = {"EnvClientT", "ResultT"}
NO_MODULES = {
    "openenv.core.env_server._utils",
    "openenv.core.env_server.gradio_theme",
    "openenv.core.env_server.gradio_ui",
}


@pytest.fixture(scope="module")
def listed(their_python: Path) -> dict[str, list[str]]:
    command = [their_python, "-W", "ignore", "-c", LISTING, json.dumps(MODULES)]
    return json.loads(subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout)


def test_each_name_at_each_path_is_here_or_says_what_to_use(listed: dict[str, list[str]]) -> None:
    here: set[str] = set()
    unexplained: dict[str, str] = {}
    for module, names in listed.items():
        if module in NO_MODULES:
            continue
        ours = module.replace("openenv.core", "openenv_trl.compat")
        for name in {*names} - TYPE_VARIABLES:
            try:
                exec(f"from {ours} import {name}", {})
                here.add(name)
            except ImportError as error:
                if "does not offer" not in str(error) and "no counterpart" not in str(error):
                    unexplained[f"{module}.{name}"] = str(error)
    assert unexplained == {}
    assert {"Environment", "CallToolObservation", "MCPEnvironment", "create_app", "EnvClient", "StepResult"} <= here
