"""The README's examples run as they stand, but for the size of the model."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from openenv_trl import ProcessProvider, check_environment
from openenv_trl.training.tiny_policy import make_tiny_policy
from openenv_trl.types import Tool

from .providers.engines import docker, require_engine

ROOT = Path(__file__).parents[1]
TRAIN, CONNECT, CONTAINERS, ENVIRONMENT = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)

ON_A_CPU = (
    "args=GRPOConfig(output_dir=OUTPUT, max_steps=1, use_cpu=True, bf16=False, gradient_checkpointing=False, "
    "per_device_train_batch_size=8, num_generations=4, save_strategy='no', report_to='none', "
)


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "guess_app.py").write_text(ENVIRONMENT)
    monkeypatch.syspath_prepend(tmp_path)
    module = __import__("guess_app")
    yield module
    del sys.modules["guess_app"]


def test_the_example_of_training_is_fifteen_lines_and_trains(tmp_path: Path) -> None:
    assert len([line for line in TRAIN.splitlines() if line.strip()]) <= 15
    make_tiny_policy(tmp_path / "model", [], [Tool(name="hit"), Tool(name="stand")], layers=1, hidden_size=32)
    with ProcessProvider(str(ROOT / "environments" / "blackjack_env")) as servers:
        program = (
            TRAIN.replace("http://localhost:8000", servers.base_urls[0])
            .replace("Qwen/Qwen3-0.6B", str(tmp_path / "model"))
            .replace("args=GRPOConfig(", ON_A_CPU.replace("OUTPUT", repr(str(tmp_path))))
        )
        names: dict[str, Any] = {}
        exec(compile(program, "README.md", "exec"), names)
        names["rollout"].close()
    assert names["trainer"].state.global_step == 1
    assert "reward" in names["trainer"].state.log_history[0]


def test_the_example_of_a_client_plays_a_hand(capsys: pytest.CaptureFixture[str]) -> None:
    with ProcessProvider(str(ROOT / "environments" / "blackjack_env")) as servers:
        exec(compile(CONNECT.replace("http://localhost:8000", servers.base_urls[0]), "README.md", "exec"), {})
    assert capsys.readouterr().out.strip().endswith("True")


def test_the_example_of_an_environment_keeps_every_promise(environment: Any) -> None:
    assert list(check_environment(environment.GuessEnvironment)) == []


def test_the_example_of_an_environment_is_served_and_says_its_message_to_the_model(
    environment: Any, tmp_path: Path
) -> None:
    from openenv_trl.rollout import RandomActionPolicy, Task
    from openenv_trl.rollout.play import play_tasks, run_blocking
    from openenv_trl.training.tiny_policy import make_tokenizer

    guess = Tool(name="guess", input_schema={"type": "object", "properties": {"digit": {"type": "integer"}}})

    async def play(urls: list[str]) -> Any:
        return await play_tasks(
            [Task(prompt=[{"role": "user", "content": "Play."}], reset={"seed": i}) for i in range(20)],
            urls,
            make_tokenizer([], [guess]),
            lambda engine: RandomActionPolicy(engine.template, engine.actions, seed=0),
        )

    with ProcessProvider("guess_app:app", cwd=tmp_path) as servers:
        trajectories = run_blocking(play, list(servers.base_urls))
    for trajectory in trajectories:
        assert re.fullmatch(r"Guess a digit\. It is (odd|even)\.", trajectory.first_observation)
        assert trajectory.turns[-1].observations[-1].startswith("It was")
        assert trajectory.reward in (0.0, 1.0)


@pytest.mark.docker
@pytest.mark.timeout(600)
def test_the_example_of_containers_runs(capsys: pytest.CaptureFixture[str]) -> None:
    require_engine()
    make = ["make", "--file", "images.mk", "image-echo", "IMAGE_TAG=readme-test"]
    subprocess.run(make, cwd=ROOT, check=True, capture_output=True)
    try:
        exec(compile(CONTAINERS.replace("echo-env:latest", "echo-env:readme-test"), "README", "exec"), {})
    finally:
        docker("image", "rm", "--force", "echo-env:readme-test", check=False)
    assert capsys.readouterr().out.count("http://127.0.0.1:") == 4
