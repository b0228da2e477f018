"""The public package's client on this server. It lives in ``.venv-openenv``; without that the test is left out."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from openenv_trl.providers import ProcessProvider

PACKAGE = Path(__file__).resolve().parents[1]
PYTHON = PACKAGE.parents[1] / ".venv-openenv" / "bin" / "python"

# The public environment's types and its client, as its package has them: the client drops done and reward from the
# observation object, and makes the rest of it an observation.
PLAY = """
import json, sys
from openenv.core.env_client import EnvClient
from openenv.core.client_types import StepResult
from openenv.core.env_server.types import Action, Observation, State


class CodeAction(Action):
    code: str


class CodeObservation(Observation):
    stdout: str = ""
    stderr: str = ""
    exit_code: int = 0


class CodeState(State):
    last_exit_code: int = 0


class CodingEnv(EnvClient[CodeAction, CodeObservation, CodeState]):
    def _step_payload(self, action):
        return {"code": action.code}

    def _parse_result(self, payload):
        fields = {k: v for k, v in payload["observation"].items() if k not in ("done", "reward")}
        observation = CodeObservation(**fields)
        return StepResult(observation=observation, reward=payload.get("reward"), done=bool(payload.get("done", False)))

    def _parse_state(self, payload):
        return CodeState(
            episode_id=payload.get("episode_id"),
            step_count=payload.get("step_count", 0),
            last_exit_code=payload.get("last_exit_code", 0),
        )


played = []
with CodingEnv(base_url=sys.argv[1]).sync() as env:
    opening = env.reset(episode_id="mine")
    played.append([opening.observation.stdout, opening.reward, opening.done])
    for code in json.loads(sys.argv[2]):
        result = env.step(CodeAction(code=code))
        seen = result.observation
        played.append([seen.stdout, seen.stderr, seen.exit_code, result.reward, result.done])
    state = env.state()
    played.append([state.episode_id, state.step_count, state.last_exit_code])
print(json.dumps(played))
"""

# What the public environment gives for code, as its transforms are told of in its package: minus one for what counts as
# unsafe, a tenth for at most a hundred characters, minus two tenths for what is no Python.
REWARDS: dict[str, float] = {
    "x = 20\nx + 1": 0.1,
    "print('a')": 0.1,
    "import os": -0.9,
    "import  subprocess": -0.9,
    "eval('1')": -0.9,
    "open('f')": -0.9,
    "# " + "long " * 40 + "\n1": 0.0,
    "import os  # " + "long " * 40: -1.0,
    "def f(:": -0.1,
    "1 / 0": 0.1,
    "": 0.1,
}


def played_by_the_public_client(base_url: str, cells: list[str]) -> list[list[Any]]:
    if not PYTHON.exists():
        text = "no .venv-openenv with the public package: `make .venv-openenv/.openenv` builds it"
        if os.environ.get("OPENENV_TRL_REQUIRE_INTEROP") == "1":
            pytest.fail(text)
        pytest.skip(text)
    run = subprocess.run([PYTHON, "-c", PLAY, base_url, json.dumps(cells)], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def test_the_public_packages_client_plays_here_as_at_home() -> None:
    variables = {"CODING_REWARD": "rules", "CODING_EXECUTOR": "smolagents"}
    with ProcessProvider(str(PACKAGE), env_vars=variables, ready_timeout_s=120) as servers:
        opening, *steps, state = played_by_the_public_client(servers.base_urls[0], list(REWARDS))
    assert opening[0] == ""
    assert opening[2] is False
    assert {code: step[3] for code, step in zip(REWARDS, steps, strict=True)} == pytest.approx(REWARDS)
    assert [step[4] for step in steps] == [False] * len(REWARDS)
    assert steps[0][:3] == ["21", "", 0]
    assert steps[1][:3] == ["a\n", "", 0]
    assert (steps[2][0], steps[2][2]) == ("", 1)
    assert "Import of os is not allowed" in steps[2][1]
    assert state == ["mine", len(REWARDS), 0]
