"""The recipe is short, knows no particular environment, and runs under several processes."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from openenv_trl.training.launch import launch_command

ROOT = Path(__file__).parents[2]
RECIPE = ROOT / "recipes" / "grpo.py"


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "TRL_EXPERIMENTAL_SILENCE": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


def small(folder: Path, steps: int = 2) -> list[str]:
    return [
        *("--config", "configs/blackjack_cpu.yaml", "--max_steps", str(steps), "--num_tasks", "64"),
        *("--model_name_or_path", f"{folder}/warm_start", "--output_dir", f"{folder}/grpo"),
        *("--warm_start_episodes", "200", "--warm_start_steps", "40", "--sessions_per_server", "64"),
        *("--per_device_train_batch_size", "16", "--num_generations", "8"),
    ]


def test_the_recipe_can_be_read_in_one_sitting_and_knows_no_environment() -> None:
    text = RECIPE.read_text()
    assert len(text.splitlines()) <= 180
    program = text.split('"""', 2)[2]
    assert not re.search("blackjack|hit|stand|card", program)


def test_the_command_line_comes_before_the_file(tmp_path: Path) -> None:
    done = run(launch_command(RECIPE, [*small(tmp_path, steps=1), "--learning_rate", "3e-3", "--warmup_steps", "0"]))
    assert done.returncode == 0, done.stderr
    log = json.loads((tmp_path / "grpo" / "trainer_state.json").read_text())["log_history"]
    assert log[0]["learning_rate"] == pytest.approx(3e-3)


def test_two_processes_train_one_model(tmp_path: Path) -> None:
    done = run(launch_command(RECIPE, small(tmp_path), num_processes=2))
    assert done.returncode == 0, done.stderr
    log = json.loads((tmp_path / "grpo" / "trainer_state.json").read_text())["log_history"]
    assert [entry["step"] for entry in log if "reward" in entry] == [1, 2]
    names = sorted(path.name for path in (tmp_path / "grpo" / "trajectories").glob("*.parquet"))
    assert [name[-9:] for name in names] == ["0.parquet", "1.parquet"] * 2, "each process keeps its own trajectories"
