"""Every experiment that is shown can be read, by this version of TRL, and plays an environment that is there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from coding_env.hub import built_in_rows

from openenv_trl.experiment import load_experiment

ROOT = Path(__file__).parents[1]
ON_A_CPU = ["--use_cpu", "true", "--bf16", "false", "--use_vllm", "false"]


@pytest.mark.parametrize("config", sorted((ROOT / "configs").glob("*.yaml")), ids=lambda path: path.stem)
def test_an_experiment_is_read_whole(config: Path) -> None:
    experiment = load_experiment(config, ON_A_CPU)
    assert experiment.environment.environment is not None
    assert (ROOT / experiment.environment.environment / "openenv.yaml").is_file()
    training = experiment.training
    assert training.generation_batch_size % training.num_generations == 0
    limits = experiment.environment.limits(training.max_completion_length)
    assert limits.max_completion_tokens == training.max_completion_length
    environment = experiment.environment
    provided = environment.servers_to_start()
    sessions = provided.pool.max_sessions if provided else environment.replicas * environment.sessions_per_server
    assert sessions >= training.generation_batch_size, "no episode of a batch waits for another's session"


def test_the_coding_tasks_are_those_that_come_with_the_environment() -> None:
    file = ROOT / "configs" / "coding_tasks.jsonl"
    assert [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] == built_in_rows()


def test_the_command_line_comes_before_the_file() -> None:
    experiment = load_experiment(
        ROOT / "configs" / "blackjack_cpu.yaml", ["--learning_rate", "2e-3", "--replicas", "3"]
    )
    assert (experiment.training.learning_rate, experiment.environment.replicas) == (2e-3, 3)


def test_one_address_may_stand_without_a_list(tmp_path: Path) -> None:
    config = tmp_path / "experiment.yaml"
    config.write_text("environment_urls: http://localhost:8000\nprompt: Play.\nuse_cpu: true\nbf16: false\n")
    assert load_experiment(config).environment.environment_urls == ["http://localhost:8000"]
