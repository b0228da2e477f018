"""What is not imported: each of these modules costs time and memory that its user did not ask for."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = {"torch", "transformers", "trl", "datasets", "accelerate", "numpy", "pandas", "pyarrow", "matplotlib", "scipy"}
HEAVY |= {"docker", "kubernetes", "daytona", "gradio", "mcp", "fastmcp", "IPython", "openai", "jinja2", "rich", "typer"}
SERVER = {"fastapi", "starlette", "uvicorn", "uvloop", "httptools"}
ENVIRONMENT = Path(__file__).parents[1] / "environments" / "blackjack_env"


def _imported_by(code: str) -> set[str]:
    tell = f"import sys, json\n{code}\nprint(json.dumps(sorted({{name.partition('.')[0] for name in sys.modules}})))"
    done = subprocess.run([sys.executable, "-c", tell], capture_output=True, text=True, timeout=120, check=True)
    return set(json.loads(done.stdout))


def test_the_package_alone_imports_next_to_nothing() -> None:
    imported = _imported_by("import openenv_trl")
    assert not imported & (HEAVY | SERVER | {"pydantic", "anyio", "websockets", "orjson", "httpx", "yaml"})


def test_the_client_imports_no_server_and_nothing_heavy() -> None:
    imported = _imported_by("from openenv_trl import EnvClient, GenericEnvClient, SyncEnvClient")
    assert not imported & (HEAVY | SERVER | {"httpx", "yaml"})


@pytest.mark.parametrize("name", ["Action", "Environment", "Tool", "OpenEnvError"])
def test_an_environments_types_import_no_server_no_client_and_nothing_heavy(name: str) -> None:
    imported = _imported_by(f"from openenv_trl import {name}")
    assert not imported & (HEAVY | SERVER | {"httpx", "yaml", "websockets", "anyio"})


def test_a_served_environment_imports_no_client_and_nothing_heavy() -> None:
    imported = _imported_by(
        "import openenv_trl.server.serving\n"
        "from openenv_trl.server.loading import load_app\n"
        f"load_app({str(ENVIRONMENT)!r})\n"
        "assert 'openenv_trl.client' not in sys.modules\n"
        "assert 'pydantic.v1' not in sys.modules"
    )
    assert "fastapi" in imported
    assert not imported & (HEAVY | {"httpx", "yaml"})


ROOMS = (
    "",
    ".client",
    ".evaluation",
    ".gymnasium",
    ".providers",
    ".rewards",
    ".rollout",
    ".rollout.policies",
    ".rollout.watch",
)
ROOMS += (".rubrics", ".server", ".training", ".training.async_worker", ".wire")


@pytest.mark.parametrize("room", ROOMS)
def test_no_public_name_is_that_of_a_module(room: str) -> None:
    # Importing the module would put it where the name was.
    code = f"import openenv_trl{room} as room, pkgutil, types\n"
    code += "names = set(getattr(room, '__all__', ())) - {'rewards', 'rubrics'}\n"
    code += "modules = {each.name for each in pkgutil.iter_modules(room.__path__)}\n"
    code += "assert not names & modules, names & modules"
    subprocess.run([sys.executable, "-c", code], timeout=120, check=True)
