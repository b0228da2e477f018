"""The public package's servers as Gymnasium environments, and its client on our servers.

The package lives in ``.venv-openenv``, which ``make test`` builds; without that these tests are left out.
"""

from __future__ import annotations

import json
import os
import subprocess
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env

from openenv_trl.errors import ProtocolError
from openenv_trl.gymnasium import RemoteEnv, RemoteVectorEnv
from openenv_trl.gymnasium.schema_spaces import AnyText

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv-openenv" / "bin" / "python"

PLAY = """
import json, sys
from openenv.core.generic_client import GenericEnvClient

with GenericEnvClient(base_url=sys.argv[1]).sync() as env:
    steps = [env.reset(seed=7)]
    for action in (0, 1, 1, 0, 1):
        steps.append(env.step({"action": action}))
    state = env.state()
print(json.dumps({
    "seen": [[step.observation["observation"], step.reward, step.done] for step in steps],
    "message": steps[0].observation["message"],
    "state": [state["env_id"], state["step_count"], state["seed"]],
}))
"""


@pytest.fixture(scope="module")
def public_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server of the public package: the interop suite's probe."""
    _require_public_package()
    command = [str(PYTHON), str(ROOT / "tests" / "interop" / "serve.py"), str(tmp_path_factory.mktemp("packages"))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["probe"]
        process.stdin.close()
        process.wait(timeout=30)


def _require_public_package() -> None:
    if PYTHON.exists():
        return
    text = "no .venv-openenv with the public package: `make .venv-openenv/.openenv` builds it"
    if os.environ.get("OPENENV_TRL_REQUIRE_INTEROP") == "1":
        pytest.fail(text)
    pytest.skip(text)


def test_a_public_server_passes_gymnasiums_own_check(public_server: str) -> None:
    env = RemoteEnv(public_server)
    assert env.action_space == AnyText(min_length=1)
    assert isinstance(env.observation_space, spaces.Dict)
    assert sorted(env.observation_space.spaces) == ["echoed", "n"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message="(?s).*not having a spec")
        check_env(env)
    shown, _ = env.reset(seed=3, options={"level": 2})
    assert shown["echoed"] == "ready seed=3 level=2"
    shown, reward, terminated, truncated, info = env.step("meta")
    assert (shown["echoed"], reward, terminated, truncated) == ("meta", 1.5, False, False)
    assert info["k"] == 1
    assert env.step("end")[2:4] == (True, False)
    env.close()


def test_a_reward_that_json_has_no_word_for_is_not_made_up(public_server: str) -> None:
    env = RemoteEnv(public_server)
    env.reset(seed=1)
    with pytest.raises(ProtocolError, match="gave no reward"):
        env.step("nan")
    env.close()


def test_a_vector_of_sessions_plays_on_a_public_server(public_server: str) -> None:
    envs = RemoteVectorEnv(public_server, 1, fields=["echoed"])
    assert envs.reset(seed=1)[0] == ("ready seed=1 level=0",)
    assert envs.step(("hello",))[0] == ("hello",)
    envs.close()


def test_the_public_packages_client_plays_a_gymnasium_environment(cart_pole: str) -> None:
    _require_public_package()
    done = subprocess.run([PYTHON, "-c", PLAY, cart_pole], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    seen: dict[str, Any] = json.loads(done.stdout)
    local = gymnasium.make("CartPole-v1")
    shown, _ = local.reset(seed=7)
    expected: list[Any] = [[shown, None, False]]
    for action in (0, 1, 1, 0, 1):
        shown, reward, *_ = local.step(action)
        expected.append([shown, reward, False])
    for (numbers, *outcome), (array, *other) in zip(seen["seen"], expected, strict=True):
        assert numpy.array(numbers, numpy.float32).tobytes() == array.tobytes()
        assert outcome == other
    assert seen["message"].startswith("Observation: cart position ")
    assert seen["state"] == ["CartPole-v1", 5, 7]
