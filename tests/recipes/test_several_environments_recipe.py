"""The recipe trains in several environments at once, with a curriculum in one, from one YAML file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from openenv_trl.rollout import read_parquet
from openenv_trl.training.tiny_policy import make_tiny_policy
from openenv_trl.types import Tool

ROOT = Path(__file__).parents[2]
EXPERIMENT = """
environments:
  cards:
    environment: environments/blackjack_env
    prompt: "Play blackjack."
    weight: 1
  rounds:
    environment: tests/training/distributed/rounds_env
    prompt: "Play."
    weight: 3
    max_turns: 4
    curriculum:
      levels: [{name: short, reset: {rounds: 1}}, {name: long, reset: {rounds: 2}}]
      measure: reward
      threshold: -1.0
      window: 1
num_tasks: 32
sessions_per_server: 32
max_new_tokens_per_turn: 12
use_cpu: true
bf16: false
gradient_checkpointing: false
per_device_train_batch_size: 16
num_generations: 4
max_completion_length: 100
max_steps: 2
logging_steps: 1
shuffle_dataset: false
save_strategy: "no"
report_to: none
disable_tqdm: true
"""


@pytest.mark.timeout(280)
def test_two_environments_are_trained_in_from_one_file(tmp_path: Path) -> None:
    make_tiny_policy(
        tmp_path / "model", ["Play."] * 8, [Tool(name="hit"), Tool(name="stand")], layers=1, hidden_size=32
    )
    file = tmp_path / "experiment.yaml"
    file.write_text(EXPERIMENT + f"model_name_or_path: {tmp_path}/model\noutput_dir: {tmp_path}/out\n")
    done = subprocess.run(
        [sys.executable, "-m", "openenv_trl.cli", "train", str(file)],
        cwd=ROOT,
        env={**os.environ, "TRL_EXPERIMENTAL_SILENCE": "1"},
        capture_output=True,
        text=True,
        timeout=270,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    log = json.loads((tmp_path / "out" / "trainer_state.json").read_text())["log_history"]
    assert [entry["step"] for entry in log if "rollout/cards/turns" in entry] == [1, 2]
    batches = [read_parquet(path) for path in sorted((tmp_path / "out" / "trajectories").glob("*.parquet"))]
    played = [[t.environment for t in batch] for batch in batches]
    assert [names.count("rounds") for names in played] == [12, 12], "three quarters, as the weights say"
    rounds = [[t.task.reset["rounds"] for t in batch if t.environment == "rounds"] for batch in batches]
    assert set(rounds[0]) == {1}
    assert 2 in rounds[1]
