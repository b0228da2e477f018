"""A served hand is the same hand: through the typed client, by actions and by tools, however the app is named."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
import yaml
from blackjack_env import BlackjackAction, BlackjackEnv, BlackjackObservation
from blackjack_env import models as models_module
from blackjack_env.server.blackjack_environment import BlackjackEnvironment

from openenv_trl.client import GenericEnvClient, fetch_metadata, fetch_schema
from openenv_trl.errors import (
    ActionValidationError,
    ConfigurationError,
    EnvironmentExecutionError,
    SessionCapacityError,
)
from openenv_trl.providers import ProcessProvider

pytestmark = pytest.mark.anyio
PACKAGE = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with ProcessProvider(str(PACKAGE), env_vars={"MAX_CONCURRENT_ENVS": "3"}) as provider:
        yield provider.replicas[0].base_url


def in_process(seed: int, moves: list[str], **reset_arguments: Any) -> list[BlackjackObservation]:
    environment = BlackjackEnvironment()
    observations = [environment.reset(seed=seed, **reset_arguments)]
    for move in moves:
        if not observations[-1].done:
            observations.append(environment.step(BlackjackAction.model_validate({"move": move})))
    return observations


async def test_the_typed_client_gets_what_the_environment_gives(server: str) -> None:
    async with BlackjackEnv(server) as env:
        for seed in range(30):
            expected = in_process(seed, ["hit", "stand"], task_seed=seed // 4)
            result = await env.reset(seed=seed, task_seed=seed // 4, episode_id=f"hand {seed}")
            assert result.observation == expected[0]
            for observation, move in zip(expected[1:], ["hit", "stand"], strict=False):
                result = await env.step(BlackjackAction.model_validate({"move": move}))
                assert result.observation == observation
                assert (result.reward, result.done) == (observation.reward, observation.done)
            state = await env.state()
            assert (state.episode_id, state.step_count) == (f"hand {seed}", len(expected) - 1)
            assert (state.seed, state.task_seed) == (seed, seed // 4)


def test_the_blocking_client_plays_a_hand(server: str) -> None:
    with BlackjackEnv(server).sync() as env:
        assert env.reset(seed=1).observation == in_process(1, [])[0]
        assert env.step(BlackjackAction(move="stand")).observation == in_process(1, ["stand"])[1]


async def test_tools_are_offered_and_play_the_same_hand(server: str) -> None:
    async with GenericEnvClient(server) as env:
        assert [tool.name for tool in await env.list_tools()] == ["hit", "stand"]
        opening = await env.reset(seed=2)
        expected = in_process(2, ["stand"])
        assert opening.observation["message"] == expected[0].message
        result = await env.step({"type": "call_tool", "tool_name": "stand", "arguments": {}})
        assert (result.observation["message"], result.reward, result.done) == (
            expected[1].message,
            expected[1].reward,
            True,
        )


async def test_what_a_client_does_wrong_is_told_and_the_session_goes_on(server: str) -> None:
    async with GenericEnvClient(server) as env:
        with pytest.raises(EnvironmentExecutionError, match="reset"):
            await env.step({"move": "hit"})
        with pytest.raises(ConfigurationError, match=r"'sed'.*task_seed"):
            await env.reset(sed=1)
        await env.reset(seed=3)
        with pytest.raises(ActionValidationError):
            await env.step({"move": "split"})
        await env.step({"move": "stand"})
        with pytest.raises(EnvironmentExecutionError, match=r"over.*reset"):
            await env.step({"move": "stand"})
        assert (await env.reset(seed=3)).observation["message"] == in_process(3, [])[0].message


async def test_the_number_of_sessions_is_read_from_the_environment_variable(server: str) -> None:
    clients = [GenericEnvClient(server) for _ in range(4)]
    try:
        for client in clients[:3]:
            await client.connect()
        with pytest.raises(SessionCapacityError):
            await clients[3].connect()
    finally:
        for client in clients:
            await client.close()


async def test_schema_and_metadata_name_what_the_manifest_names(server: str) -> None:
    manifest = yaml.safe_load((PACKAGE / "openenv.yaml").read_text())
    schema, metadata = await fetch_schema(server), await fetch_metadata(server)
    assert schema["action"]["title"] == manifest["action"]
    assert schema["observation"]["title"] == manifest["observation"]
    assert schema["state"]["properties"].keys() >= {"episode_id", "step_count", "seed", "task_seed"}
    assert hasattr(models_module, manifest["action"])
    assert (metadata["name"], metadata["version"], metadata["description"]) == (
        manifest["name"],
        manifest["version"],
        manifest["description"],
    )


async def test_the_app_is_also_served_as_server_app_from_its_folder(tmp_path: Path) -> None:
    # As OpenEnv's cloud providers do: a folder of another name, with the package installed beside it.
    (tmp_path / "env").symlink_to(PACKAGE)
    code = (
        "import os, sys; os.chdir(sys.argv[1]); sys.path[:0] = [sys.argv[1], sys.argv[2]];"
        "import server.app, blackjack_env.models;"
        "print(server.app.app.title, server.app.BlackjackAction is blackjack_env.models.BlackjackAction)"
    )
    run = await anyio.run_process([sys.executable, "-c", code, str(tmp_path / "env"), str(PACKAGE.parent)], check=True)
    assert run.stdout.decode().split()[-1] == "True"
