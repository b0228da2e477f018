"""Small projects that uv serves: one that knows this package, one that does not."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

PLAIN_PROJECT = """
[project]
name = "plain-game"
version = "0.1"
requires-python = ">=3.10"
dependencies = {dependencies}
"""

# What a server needs that is not ours: health, and the frames of a session.
PLAIN_APP = """
import json

async def app(scope, receive, send):
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept"})
        while (message := await receive())["type"] == "websocket.receive":
            said = json.loads(message["text"])
            if said["type"] == "close":
                return
            kind, data = "observation", {"observation": {"text": GREETING}, "reward": 0.0, "done": False}
            if said["type"] == "mcp":
                kind, data = "mcp", {"jsonrpc": "2.0", "id": said["data"].get("id"), "result": {}}
            await send({"type": "websocket.send", "text": json.dumps({"type": kind, "data": data})})
    elif scope["type"] == "http":
        status = 200 if scope["path"] == "/health" else 404
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b'{"status": "healthy"}'})
"""


def _uv_reads_pips_settings() -> None:
    """Where pip is told of indexes and wheels, uv is told the same."""
    for ours, theirs in (("PIP_INDEX_URL", "UV_DEFAULT_INDEX"), ("PIP_EXTRA_INDEX_URL", "UV_INDEX")):
        if ours in os.environ:
            os.environ.setdefault(theirs, os.environ[ours])
    if "PIP_FIND_LINKS" in os.environ:
        os.environ.setdefault("UV_FIND_LINKS", ",".join(os.environ["PIP_FIND_LINKS"].split()))


_uv_reads_pips_settings()


@pytest.fixture
def plain_project(tmp_path: Path) -> Callable[..., Path]:
    """A project of one application, written for no package at all."""

    def make(*dependencies: str, app: str = PLAIN_APP, greeting: str = "hello", before: str = "") -> Path:
        folder = tmp_path / "plain_game"
        (folder / "server").mkdir(parents=True)
        (folder / "server" / "__init__.py").touch()
        (folder / "server" / "app.py").write_text(
            f"import os\n{before}\nGREETING = os.environ.get('GREETING', {greeting!r})\n{app}"
        )
        (folder / "pyproject.toml").write_text(PLAIN_PROJECT.format(dependencies=list(dependencies)))
        return folder

    return make


@pytest.fixture
def own_project(tmp_path: Path) -> Path:
    """Blackjack as a project that depends on this checkout of the package."""
    folder = tmp_path / "blackjack_env"
    shutil.copytree(
        ROOT / "environments" / "blackjack_env",
        folder,
        ignore=shutil.ignore_patterns("*.egg-info", "__pycache__", "tests"),
    )
    with (folder / "pyproject.toml").open("a") as file:
        file.write(f'\n[tool.uv.sources]\nopenenv-trl = {{ path = "{ROOT}", editable = true }}\n')
    return folder


@pytest.fixture
def committed() -> Callable[..., tuple[str, str]]:
    """Commits a folder to a git repository of its own, and returns its address and the commit."""

    def commit(folder: Path, *, branch: str = "main", tag: str = "") -> tuple[str, str]:
        git = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@example.org"]
        subprocess.run([*git, "init", "--quiet", "--initial-branch", branch], check=True)
        subprocess.run([*git, "add", "--all"], check=True)
        subprocess.run([*git, "commit", "--quiet", "--message", "all of it"], check=True)
        if tag:
            subprocess.run([*git, "tag", tag], check=True)
        head = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True)
        return f"git+file://{folder}", head.stdout.strip()

    return commit
