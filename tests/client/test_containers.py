"""Clients whose server runs in a container: started with them, gone with them, and its death told by them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from openenv_trl.client import AutoEnv, GenericEnvClient
from openenv_trl.errors import ConfigurationError, ProviderError, ServerStartError, SessionLostError
from openenv_trl.providers.docker import LocalDockerProvider
from openenv_trl.providers.owner import OWNER_LABEL, this_owner
from tests.providers.engines import docker, require_engine

pytestmark = [pytest.mark.anyio, pytest.mark.docker]

# A server that is not ours: health, and the frames of a session.
APP = """
import json, os, sys

async def app(scope, receive, send):
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept"})
        while (message := await receive())["type"] == "websocket.receive":
            said = json.loads(message["text"])
            if said["type"] == "close":
                return
            kind, data = "observation", {"observation": dict(os.environ), "reward": 0.0, "done": False}
            if said["type"] == "mcp":
                kind, data = "mcp", {"jsonrpc": "2.0", "id": said["data"].get("id"), "result": {}}
            if said["type"] == "step":
                print("out of cards", flush=True)
                os._exit(7)
            await send({"type": "websocket.send", "text": json.dumps({"type": kind, "data": data})})
    elif scope["type"] == "http":
        status = 200 if scope["path"] == "/health" else 404
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b'{"status": "healthy"}'})
"""
DOCKERFILE = """
FROM python:3.11-slim
RUN pip install --no-cache-dir --root-user-action ignore uvicorn websockets
COPY game.py /
CMD ["python", "-m", "uvicorn", "--app-dir", "/", "game:app", "--host", "0.0.0.0", "--port", "8000"]
"""


@pytest.fixture(scope="module")
def game(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The name of a game whose image, ``<name>-env:latest``, the engine has."""
    require_engine()
    folder = tmp_path_factory.mktemp("game")
    (folder / "Dockerfile").write_text(DOCKERFILE)
    (folder / "game.py").write_text(APP)
    name = f"game-{uuid.uuid4().hex[:8]}"
    docker("build", "--quiet", "--tag", f"{name}-env:latest", str(folder))
    yield name
    docker("rmi", "--force", f"{name}-env:latest", check=False)


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """Each test leaves no container of this process's behind."""
    yield
    assert docker("ps", "--all", "--quiet", "--filter", f"label={OWNER_LABEL}={this_owner().id}").stdout == ""


async def test_an_image_is_run_by_this_machines_engine(game: str) -> None:
    client = GenericEnvClient.from_docker_image(f"{game}-env", env_vars={"LEVEL": "3"}, memory="256m")
    async with client as env:
        assert (await env.reset()).observation["LEVEL"] == "3"


def test_an_image_is_run_for_a_blocking_client_too(game: str) -> None:
    with GenericEnvClient.from_docker_image(f"{game}-env") as env:
        assert env.reset().observation["HOSTNAME"]
    with GenericEnvClient(provider=LocalDockerProvider(image=f"{game}-env")) as env:
        assert env.reset().observation["HOSTNAME"]


async def test_the_death_of_a_container_is_told_with_its_last_lines(game: str) -> None:
    async with GenericEnvClient.from_docker_image(f"{game}-env") as env:
        await env.reset()
        second = await env.new_session()
        with pytest.raises(SessionLostError, match=r"has died: ended with exit code 7(?s:.*)out of cards"):
            await env.step({})
        for client in (env, second):
            with pytest.raises(SessionLostError, match=r"has died: ended with exit code 7(?s:.*)out of cards"):
                await client.reset()


async def test_an_image_that_is_not_there_says_what_to_do() -> None:
    require_engine()
    with pytest.raises(
        (ConfigurationError, ServerStartError, ProviderError), match=r"(?i)no-such-game-env.*build|pull"
    ):
        await GenericEnvClient.from_docker_image("no-such-game-env").connect()


async def test_a_field_that_there_is_not_is_told() -> None:
    require_engine()
    with pytest.raises(ConfigurationError, match="is 'memory' meant"):
        await GenericEnvClient.from_docker_image("game", memroy="1g").connect()


def test_an_installed_environment_is_run_from_its_image_where_docker_has_it(
    game: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    module = game.replace("-", "_") + "_env"
    (tmp_path / module).mkdir()
    (tmp_path / module / "__init__.py").touch()
    (tmp_path / module / "openenv.yaml").write_text(f"name: {module}\n")
    (tmp_path / f"{module}-1.dist-info").mkdir()
    metadata = f"Metadata-Version: 2.1\nName: openenv-{module}\nVersion: 1\n"
    (tmp_path / f"{module}-1.dist-info" / "METADATA").write_text(metadata)
    with AutoEnv.from_env(game, skip_install=True, env_vars={"LEVEL": "4"}) as env:
        assert env.reset().observation["LEVEL"] == "4"
    with AutoEnv.from_env("anything", docker_image=f"{game}-env:latest", skip_install=True, wait_timeout=60) as env:
        assert env.reset().observation["HOSTNAME"]


async def test_a_client_that_is_cancelled_while_its_container_starts_leaves_none(game: str) -> None:
    client = GenericEnvClient.from_docker_image(f"{game}-env", command=["sleep", "600"])
    mine = f"label={OWNER_LABEL}={this_owner().id}"
    async with anyio.create_task_group() as group:
        group.start_soon(client.connect)
        with anyio.fail_after(60):
            while not (await anyio.to_thread.run_sync(docker, "ps", "--quiet", "--filter", mine)).stdout:
                pass
        group.cancel_scope.cancel()
