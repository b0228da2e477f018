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
