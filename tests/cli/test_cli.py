"""The command line does what its help says, and a mistake of the user's is one message and not a traceback."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from openenv_trl.client import GenericEnvClient
from openenv_trl.types import Tool

ROOT = Path(__file__).parents[2]


def openenv_trl(*arguments: str, timeout: float = 200) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "openenv_trl.cli", *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
        cwd=ROOT,
        check=False,
    )


def test_help_names_each_command() -> None:
    result = openenv_trl("--help")
    assert result.returncode == 0
    for command in ("serve", "train", "eval"):
        assert re.search(rf"^\s+{command}\s", result.stdout, re.M)


def test_version_is_printed() -> None:
    from openenv_trl import __version__

    assert openenv_trl("--version").stdout.strip() == __version__


def test_serve_serves_until_it_is_told_to_stop() -> None:
    command = [sys.executable, "-m", "openenv_trl.cli", "serve", "environments/blackjack_env", "--port", "0"]
    command += ["--log-format", "json"]
    server = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert server.stdout is not None
    try:
        url = None
        for line in server.stdout:
            found = re.search(r"http://127\.0\.0\.1:\d+", json.loads(line)["message"])
            if found:
                url = found.group()
                break
        assert url is not None, "the server says where it listens"

        async def play() -> str:
            async with GenericEnvClient(url) as env:
                return (await env.reset(seed=1)).observation["message"]

        assert anyio.run(play).startswith("Your hand:")
    finally:
        server.terminate()
    assert server.wait(timeout=120) in (0, -15)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["serve", "environments/no_such_env"], "no_such_env"),
        (["train", "configs/no_such.yaml"], "no_such.yaml"),
        (["eval", "configs/no_such.yaml"], "no_such.yaml"),
        (["eval", "configs/blackjack_cpu.yaml", "--model", "nowhere/at/all"], "nowhere/at/all"),
        (["eval", "configs/blackjack_cpu.yaml", "--lerning_rate", "1"], "lerning_rate"),
        (["eval", "configs/blackjack_cpu.yaml", "--shared_randomness", "luck"], "luck"),
        (["eval", "configs/blackjack_cpu.yaml", "--episodes", "0"], "--episodes"),
        (["eval", "configs/blackjack_cpu.yaml", "--episodes", "-3"], "--episodes"),
        (["eval", "configs/blackjack_cpu.yaml", "--replicas", "two"], "--replicas: invalid int value: 'two'"),
        (["train", "configs/blackjack_cpu.yaml", "--replicas", "two"], "--replicas: invalid int value: 'two'"),
        (["train", "configs/blackjack_cpu.yaml", "--environment", "no/such/env"], "no/such/env"),
        (["train", "configs/no_such.yaml", "--num-processes", "2"], "no_such.yaml"),
        (["train", "configs/blackjack_cpu.yaml", "--num-processes", "0"], "--num-processes"),
        (["train", "configs/blackjack_cpu.yaml", "--accelerate-config", "no_such.yaml"], "no_such.yaml"),
        (["serve", "environments/blackjack_env", "--port", "99999"], "--port 99999"),
        (["serve", "--image", "echo-env:1", "--dry-run"], "--dry-run, --image: only with --kubernetes"),
        (["serve", "environments/blackjack_env", "--replicas", "2"], "Add --kubernetes"),
        (["serve", "environments/blackjack_env", "--max-concurrent-envs", "0"], "--max-concurrent-envs"),
    ],
)
def test_a_mistake_is_one_message_that_names_it(arguments: list[str], words: str) -> None:
    result = openenv_trl(*arguments)
    assert result.returncode != 0
    assert words in result.stderr
    assert "Traceback" not in result.stderr
    assert len(result.stderr.splitlines()) <= 4


def test_a_port_that_is_taken_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        result = openenv_trl("serve", "environments/blackjack_env", "--port", str(taken.getsockname()[1]))
    assert result.returncode != 0
    assert "Address already in use. Choose another --host or --port" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.fixture
def tiny_model(tmp_path: Path) -> Path:
    from openenv_trl.training import make_tiny_policy

    tool = Tool(name="hit", description="Take a card.", input_schema={"type": "object", "properties": {}})
    make_tiny_policy(tmp_path / "tiny", ["Your hand: 10, 6."], [tool])
    return tmp_path / "tiny"


@pytest.mark.parametrize("command", ["train", "eval"])
def test_servers_that_cannot_be_reached_are_told_by_their_address(command: str, tiny_model: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as once:
        address = f"http://127.0.0.1:{once.getsockname()[1]}"
    (tiny_model / "model.safetensors").write_bytes(b"no weights")  # loading it would be told in place of the address
    settings = ["--model_name_or_path", str(tiny_model), "--output_dir", str(tiny_model.parent / "grpo")]
    result = openenv_trl(command, "configs/blackjack_cpu.yaml", *settings, "--environment_urls", address)
    assert result.returncode != 0
    last = result.stderr.strip().splitlines()
    assert any(line.startswith("error: ") and address in line for line in last)
    assert "Traceback" not in result.stderr


def test_a_model_that_cannot_be_loaded_is_told_by_its_name(tiny_model: Path) -> None:
    (tiny_model / "model.safetensors").rename(tiny_model / "other.safetensors")
    result = openenv_trl("eval", "configs/blackjack_cpu.yaml", "--model", str(tiny_model))
    assert result.returncode != 0
    assert f"error: Cannot load the model '{tiny_model}'" in result.stderr
    assert "Traceback" not in result.stderr


def test_an_experiment_trains_and_is_evaluated(tmp_path: Path) -> None:
    settings = [
        *("--model_name_or_path", f"{tmp_path}/warm_start", "--output_dir", f"{tmp_path}/grpo"),
        *("--warm_start_episodes", "200", "--warm_start_steps", "40", "--sessions_per_server", "64"),
        *("--per_device_train_batch_size", "32", "--num_generations", "8", "--num_tasks", "64"),
    ]
    trained = openenv_trl("train", "configs/blackjack_cpu.yaml", "--max_steps", "2", *settings)
    assert trained.returncode == 0, trained.stderr
    assert "step    2/2" in trained.stdout
    log = json.loads((tmp_path / "grpo" / "trainer_state.json").read_text())["log_history"]
    assert [entry["step"] for entry in log if "reward" in entry] == [1, 2]
    assert len(list((tmp_path / "grpo" / "trajectories").glob("*.parquet"))) == 2

    report = tmp_path / "report.json"
    evaluated = openenv_trl(
        *("eval", "configs/blackjack_cpu.yaml", "--model", f"{tmp_path}/grpo", "--episodes", "200", "--greedy"),
        *("--output", str(report), *settings),
    )
    assert evaluated.returncode == 0, evaluated.stderr
    (found,) = json.loads(report.read_text())
    assert found["episodes"] == 200
    assert found["interval_95"][0] <= found["mean_return"] <= found["interval_95"][1]
    assert "greedy" in evaluated.stdout


@pytest.mark.parametrize("command", ["train", "eval"])
def test_without_the_training_extra_the_message_says_what_to_install(command: str) -> None:
    program = (
        "import sys; sys.modules['trl'] = None; "
        f"sys.argv = ['openenv-trl', {command!r}, 'configs/blackjack_cpu.yaml']; "
        "from openenv_trl.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "pip install 'openenv-trl[train]'" in done.stderr
    assert "Traceback" not in done.stderr
