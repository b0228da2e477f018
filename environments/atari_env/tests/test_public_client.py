"""The public package's client on this server. It lives in ``.venv-openenv``; without that the test is left out."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from atari_env.models import AtariAction
from atari_env.server.atari_environment import environment_class

PYTHON = Path(__file__).resolve().parents[3] / ".venv-openenv" / "bin" / "python"

PLAY = """
import json, sys
from openenv.core.generic_client import GenericEnvClient

with GenericEnvClient(base_url=sys.argv[1]).sync() as env:
    opening = env.reset(seed=3)
    seen = [[opening.observation, opening.reward, opening.done]]
    for action in (1, 2, 2):
        whole = {"action_id": action, "game_name": "pong", "obs_type": "rgb", "full_action_space": False}
        result = env.step(whole)
        seen.append([result.observation, result.reward, result.done])
    state = env.state()
print(json.dumps({"seen": seen, "state": state}))
"""


def test_the_public_packages_client_gets_its_lists_of_integers(pong_server: str) -> None:
    if not PYTHON.exists():
        text = "no .venv-openenv with the public package: `make .venv-openenv/.openenv` builds it"
        if os.environ.get("OPENENV_TRL_REQUIRE_INTEROP") == "1":
            pytest.fail(text)
        pytest.skip(text)
    run = subprocess.run([PYTHON, "-c", PLAY, pong_server], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    told = json.loads(run.stdout)
    here = environment_class("pong")()
    expected = [here.reset(seed=3), *(here.step(AtariAction(action_id=action)) for action in (1, 2, 2))]
    for (observation, reward, done), own in zip(told["seen"], expected, strict=True):
        assert observation["screen"] == own.screen.tolist()
        assert len(observation["screen"]) == 210 * 160 * 3
        assert observation["screen_shape"] == [210, 160, 3]
        assert observation["legal_actions"] == [0, 1, 2, 3, 4, 5]
        assert (observation["lives"], observation["frame_number"]) == (0, own.frame_number)
        assert observation["episode_frame_number"] == own.episode_frame_number
        assert (reward, done) == (own.reward, own.done)
        assert observation["metadata"]["game_name"] == "pong"
        assert observation["metadata"]["action_meanings"][:3] == ["NOOP", "FIRE", "RIGHT"]
    state = told["state"]
    names = ("game_name", "obs_type", "full_action_space", "mode", "difficulty", "frameskip", "step_count")
    assert [state[name] for name in names] == ["pong", "rgb", False, None, None, 4, 3]
    assert state["repeat_action_probability"] == 0.0
