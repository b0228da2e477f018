"""A served match is the same match: through the typed client, by numbers and by tools, whatever game the server has."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
import yaml
from openspiel_env import OpenSpielAction, OpenSpielEnv, OpenSpielObservation
from openspiel_env import models as models_module
from openspiel_env.server.openspiel_environment import environment_class
from openspiel_env.server.settings import MatchSettings, settings_from_variables
from websockets.sync.client import connect

from openenv_trl.client import GenericEnvClient, fetch_metadata, fetch_schema
from openenv_trl.errors import ActionValidationError, ConfigurationError, EnvironmentExecutionError
from openenv_trl.providers import ProcessProvider

pytestmark = pytest.mark.anyio
PACKAGE = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def catch_server() -> Iterator[str]:
    with ProcessProvider(str(PACKAGE)) as provider:
        yield provider.replicas[0].base_url


@pytest.fixture(scope="module")
def squares_server() -> Iterator[str]:
    variables = {
        "OPENSPIEL_GAME": "tic_tac_toe",
        "OPENSPIEL_AGENT_PLAYER": "1",
        "OPENSPIEL_OPPONENT_POLICY": "first",
        "OPENSPIEL_ILLEGAL_MOVES": "loss",
    }
    with ProcessProvider(str(PACKAGE), env_vars=variables) as provider:
        yield provider.replicas[0].base_url


def in_process(seed: int, actions: list[int], **reset_arguments: Any) -> list[OpenSpielObservation]:
    environment = environment_class("catch")()
    observations = [environment.reset(seed=seed, **reset_arguments)]
    return observations + [environment.step(OpenSpielAction(action_id=action)) for action in actions]


async def test_the_typed_client_gets_what_the_environment_gives(catch_server: str) -> None:
    actions = [0, 2, 1, 0, 0, 2, 2, 1, 0]
    async with OpenSpielEnv(catch_server) as env:
        for seed in range(5):
            expected = in_process(seed, actions)
            result = await env.reset(seed=seed, episode_id=f"match {seed}")
            assert result.observation == expected[0]
            for observation, action in zip(expected[1:], actions, strict=True):
                result = await env.step(OpenSpielAction(action_id=action))
                assert result.observation == observation
                assert (result.reward, result.done) == (observation.reward, observation.done)
            state = await env.state()
            assert (state.episode_id, state.step_count, state.game_name) == (f"match {seed}", 9, "catch")


def test_the_blocking_client_plays_a_match(catch_server: str) -> None:
    with OpenSpielEnv(catch_server).sync() as env:
        assert env.reset(seed=1).observation == in_process(1, [])[0]
        assert env.step(OpenSpielAction(action_id=2)).observation == in_process(1, [2])[1]


def test_frames_of_the_public_packages_client_are_answered_with_its_fields(catch_server: str) -> None:
    with connect(catch_server.replace("http", "ws", 1) + "/ws") as socket:

        def ask(frame: dict[str, Any]) -> dict[str, Any]:
            socket.send(json.dumps(frame))
            return json.loads(socket.recv(timeout=20))["data"]

        opening = ask({"type": "reset", "data": {}})
        assert (opening["reward"], opening["done"]) == (None, False)
        seen = opening["observation"]
        assert len(seen["info_state"]) == 50
        assert (seen["legal_actions"], seen["game_phase"]) == ([0, 1, 2], "initial")
        assert (seen["current_player_id"], seen["opponent_last_action"]) == (0, None)
        for _ in range(9):
            step = ask({"type": "step", "data": {"action_id": 1, "game_name": "catch", "game_params": {}}})
        assert (step["done"], step["observation"]["game_phase"], step["observation"]["legal_actions"]) == (
            True,
            "terminal",
            [],
        )
        assert step["reward"] in (1.0, -1.0)
        state = ask({"type": "state"})
        assert (state["game_name"], state["agent_player"], state["opponent_policy"]) == ("catch", 0, "random")
        assert (state["num_players"], state["game_params"], state["step_count"]) == (1, {}, 9)


async def test_tools_are_offered_and_play_the_same_match(catch_server: str) -> None:
    async with GenericEnvClient(catch_server) as env:
        assert [tool.name for tool in await env.list_tools()] == ["left", "stay", "right"]
        opening = await env.reset(seed=2)
        expected = in_process(2, [0])
        assert opening.observation["message"] == expected[0].message
        result = await env.step({"type": "call_tool", "tool_name": "left", "arguments": {}})
        assert (result.observation["message"], result.reward, result.done) == (expected[1].message, 0.0, False)


async def test_many_sessions_at_once_play_matches_of_their_own(catch_server: str) -> None:
    ended: dict[int, tuple[str, float | None]] = {}

    async def play(seed: int) -> None:
        async with OpenSpielEnv(catch_server) as env:
            result = await env.reset(seed=seed)
            turn = 0
            while not result.done:
                result = await env.step(OpenSpielAction(action_id=(seed + turn) % 3))
                turn += 1
            ended[seed] = (result.observation.message, result.reward)

    async with anyio.create_task_group() as group:
        for seed in range(100):
            group.start_soon(play, seed)
    for seed in range(100):
        last = in_process(seed, [(seed + turn) % 3 for turn in range(9)])[-1]
        assert ended[seed] == (last.message, last.reward)


async def test_what_a_client_does_wrong_is_told_and_the_session_goes_on(catch_server: str) -> None:
    async with GenericEnvClient(catch_server) as env:
        with pytest.raises(EnvironmentExecutionError, match="reset"):
            await env.step({"action_id": 0})
        with pytest.raises(ConfigurationError, match=r"'sed'.*task_seed"):
            await env.reset(sed=1)
        with pytest.raises(ConfigurationError, match=r"'rowz'"):
            await env.reset(game_params={"rowz": 3})
        await env.reset(seed=3, game_params={"rows": 2})
        with pytest.raises(ActionValidationError, match="Your moves: left, stay, right"):
            await env.step({"action_id": 3})
        with pytest.raises(ActionValidationError):
            await env.step({"action_id": "left"})
        assert (await env.step({"action_id": 1})).done
        assert (await env.reset(seed=3)).observation["message"] == in_process(3, [])[0].message


async def test_environment_variables_choose_game_player_opponent_and_what_illegal_moves_do(squares_server: str) -> None:
    async with GenericEnvClient(squares_server) as env:
        assert [tool.name for tool in await env.list_tools()] == ["play"]
        opening = await env.reset(seed=0)
        assert opening.observation["opponent_last_action"] == 0
        state = await env.state()
        assert (state["game_name"], state["agent_player"], state["opponent_policy"]) == ("tic_tac_toe", 1, "first")
        lost = await env.step({"type": "call_tool", "tool_name": "play", "arguments": {"move": "top left"}})
        assert (lost.done, lost.reward) == (True, -1.0)
        await env.reset(seed=0, illegal_moves="error")
        with pytest.raises(ActionValidationError, match="'top left' is not legal now"):
            await env.step({"type": "call_tool", "tool_name": "play", "arguments": {"move": "top left"}})


@pytest.mark.parametrize(
    ("variables", "text"),
    [
        ({"OPENSPIEL_GAME_PARAMS": "rows=3"}, "OPENSPIEL_GAME_PARAMS must be a JSON object"),
        ({"OPENSPIEL_GAME_PARAMS": "[3]"}, "game_params"),
        ({"OPENSPIEL_AGENT_PLAYER": "two"}, "agent_player"),
        ({"OPENSPIEL_OPPONENT_POLICY": "clever"}, "opponent_policy"),
        ({"OPENSPIEL_ILLEGAL_MOVES": "win"}, "illegal_moves"),
        ({"OPENSPIEL_MAX_LISTED_MOVES": "0"}, "max_listed_moves"),
    ],
)
def test_environment_variables_that_cannot_be_used_are_named(variables: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        settings_from_variables(variables)


def test_unset_environment_variables_leave_the_defaults() -> None:
    assert settings_from_variables({"OPENSPIEL_AGENT_PLAYER": "", "PATH": "/bin"}) == MatchSettings()
    chosen = settings_from_variables({"OPENSPIEL_GAME_PARAMS": '{"rows": 4}', "OPENSPIEL_AGENT_PLAYER": "1"})
    assert chosen == MatchSettings(game_params={"rows": 4}, agent_player=1)


def test_a_server_of_a_game_that_cannot_be_played_does_not_start_and_says_why() -> None:
    run = subprocess.run(
        [sys.executable, "-c", "import openspiel_env.server.app"],
        env={**os.environ, "OPENSPIEL_GAME": "katch"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode != 0
    assert "Is one of these meant: catch" in run.stderr


async def test_schema_and_metadata_name_what_the_manifest_names(catch_server: str) -> None:
    manifest = yaml.safe_load((PACKAGE / "openenv.yaml").read_text())
    schema, metadata = await fetch_schema(catch_server), await fetch_metadata(catch_server)
    assert schema["action"]["title"] == manifest["action"]
    assert schema["observation"]["title"] == manifest["observation"]
    assert schema["state"]["properties"].keys() >= {"game_name", "agent_player", "opponent_policy", "num_players"}
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
        "import server.app, openspiel_env.models;"
        "print(server.app.app.title, server.app.OpenSpielAction is openspiel_env.models.OpenSpielAction)"
    )
    run = await anyio.run_process([sys.executable, "-c", code, str(tmp_path / "env"), str(PACKAGE.parent)], check=True)
    assert run.stdout.decode().split()[-1] == "True"
