"""A run tells how far it is, however many steps it learns from a batch in."""

from __future__ import annotations

import re

import pytest
from transformers.trainer_callback import TrainerControl, TrainerState
from trl import GRPOConfig

from openenv_trl.training import RolloutProgress


def told_steps(capsys: pytest.CaptureFixture[str], reward_every: int, steps: int) -> list[int]:
    progress = RolloutProgress(every=10)
    arguments, control = GRPOConfig(use_cpu=True, bf16=False, report_to="none"), TrainerControl()
    progress.on_train_begin(arguments, TrainerState(max_steps=steps), control)
    for step in range(1, steps + 1):
        logs = {"reward": 0.5} if (step - 1) % reward_every == 0 else {"loss": 0.1}
        progress.on_log(arguments, TrainerState(global_step=step, max_steps=steps), control, logs=logs)
    return [int(step) for step in re.findall(r"step +(\d+)/", capsys.readouterr().out)]


def test_a_line_is_printed_for_every_tenth_step(capsys: pytest.CaptureFixture[str]) -> None:
    assert told_steps(capsys, reward_every=1, steps=25) == [1, 10, 20, 25]


def test_steps_without_a_reward_delay_a_line_and_lose_none(capsys: pytest.CaptureFixture[str]) -> None:
    # A batch learned from in four steps: its reward comes with the first of them.
    assert told_steps(capsys, reward_every=4, steps=40) == [1, 13, 21, 33]


def test_the_slowest_phase_of_the_episodes_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    progress = RolloutProgress()
    arguments, control = GRPOConfig(use_cpu=True, bf16=False, report_to="none"), TrainerControl()
    shares = {"waiting": 0.1, "reset": 0.0, "generating": 0.3, "stepping": 0.55, "other": 0.05}
    logs = {"reward": 0.5} | {f"rollout/time_share/{phase}": share for phase, share in shares.items()}
    progress.on_log(arguments, TrainerState(global_step=1, max_steps=2), control, logs=logs)
    assert "most time in stepping (55%)" in capsys.readouterr().out
