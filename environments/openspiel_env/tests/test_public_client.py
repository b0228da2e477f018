"""The public package's client on this server. It lives in ``.venv-openenv``; without that the test is left out."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from openspiel_env.models import OpenSpielAction
from openspiel_env.server.openspiel_environment import environment_class

from openenv_trl.providers import ProcessProvider

PACKAGE = Path(__file__).resolve().parents[1]
PYTHON = PACKAGE.parents[1] / ".venv-openenv" / "bin" / "python"

# Its OpenSpiel client as the public package ships it, over the package's own EnvClient.
PLAY = """
import json, sys
from openenv.core.client_types import StepResult
from openenv.core.env_client import EnvClient
from openenv.core.env_server.types import Action, Observation, State
from pydantic import Field


class OpenSpielAction(Action):
    action_id: int
    game_name: str = "catch"
    game_params: dict = Field(default_factory=dict)


class OpenSpielObservation(Observation):
    info_state: list[float]
    legal_actions: list[int]
    game_phase: str = "playing"
    current_player_id: int = 0
    opponent_last_action: int | None = None


class OpenSpielState(State):
    game_name: str = "catch"
    agent_player: int = 0
    opponent_policy: str = "random"
    game_params: dict = Field(default_factory=dict)
    num_players: int = 1


class OpenSpielEnv(EnvClient[OpenSpielAction, OpenSpielObservation, OpenSpielState]):
    def _step_payload(self, action):
        return {"action_id": action.action_id, "game_name": action.game_name, "game_params": action.game_params}

    def _parse_result(self, payload):
        seen = payload.get("observation", {})
        observation = OpenSpielObservation(
            info_state=seen.get("info_state", []),
            legal_actions=seen.get("legal_actions", []),
            game_phase=seen.get("game_phase", "playing"),
            current_player_id=seen.get("current_player_id", 0),
            opponent_last_action=seen.get("opponent_last_action"),
            done=payload.get("done", False),
            reward=payload.get("reward"),
            metadata=seen.get("metadata", {}),
        )
        return StepResult(observation=observation, reward=payload.get("reward"), done=payload.get("done", False))

    def _parse_state(self, payload):
        return OpenSpielState(**{key: payload[key] for key in payload if key in OpenSpielState.model_fields})


answers = []
with OpenSpielEnv(base_url=sys.argv[1]).sync() as env:
    for arguments in json.loads(sys.argv[2]):
        result = env.reset(**arguments)
        seen = [result.observation.model_dump()]
        while not result.done:
            result = env.step(OpenSpielAction(action_id=result.observation.legal_actions[0], game_name="tic_tac_toe"))
            seen.append(result.observation.model_dump())
        answers.append({"seen": seen, "state": env.state().model_dump()})
print(json.dumps(answers))
"""
FIELDS = ("info_state", "legal_actions", "game_phase", "current_player_id", "opponent_last_action", "done", "reward")


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    if not PYTHON.exists():
        text = "no .venv-openenv with the public package: `make .venv-openenv/.openenv` builds it"
        if os.environ.get("OPENENV_TRL_REQUIRE_INTEROP") == "1":
            pytest.fail(text)
        pytest.skip(text)
    variables = {"OPENSPIEL_GAME": "tic_tac_toe", "OPENSPIEL_AGENT_PLAYER": "1", "OPENSPIEL_OPPONENT_POLICY": "mcts:20"}
    with ProcessProvider(str(PACKAGE), env_vars=variables) as provider:
        yield provider.replicas[0].base_url


def test_the_public_packages_client_plays_here_as_at_home(server: str) -> None:
    matches: list[dict[str, Any]] = [{"seed": 3}, {"seed": 4, "opponent_policy": "first", "agent_player": 0}]
    run = subprocess.run([PYTHON, "-c", PLAY, server, json.dumps(matches)], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    environment = environment_class("tic_tac_toe")()
    for arguments, answer in zip(matches, json.loads(run.stdout), strict=True):
        here = environment.reset(**{"agent_player": 1, "opponent_policy": "mcts:20", **arguments})
        for seen in answer["seen"]:
            assert {field: seen[field] for field in FIELDS} == {field: getattr(here, field) for field in FIELDS}
            if not here.done:
                here = environment.step(OpenSpielAction(action_id=here.legal_actions[0]))
        assert here.done
        state = environment.state
        assert answer["state"] == {
            "episode_id": answer["state"]["episode_id"],
            "step_count": state.step_count,
            "game_name": "tic_tac_toe",
            "agent_player": state.agent_player,
            "opponent_policy": state.opponent_policy,
            "game_params": {},
            "num_players": 2,
        }
