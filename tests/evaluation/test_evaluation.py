"""Evaluations report what was played, with an interval that holds what it promises."""

from __future__ import annotations

import io
import random
from pathlib import Path

import pytest
from rich.console import Console

from openenv_trl.errors import RolloutFailureError
from openenv_trl.evaluation import EvaluationReport, comparison_table, mean_interval
from openenv_trl.evaluation.curve import learning_curve
from openenv_trl.rollout import EndReason, Task, Trajectory, Turn


def trajectory(reward: float | None, reason: EndReason = EndReason.DONE) -> Trajectory:
    return Trajectory(
        task=Task(prompt=[{"role": "user", "content": "x"}]),
        prompt_ids=[1],
        completion_ids=[2],
        mask=[1],
        logprobs=None,
        turns=[Turn(rewards=[reward])],
        end_reason=reason,
    )


def report(name: str = "policy") -> EvaluationReport:
    played = [trajectory(1.0), trajectory(-1.0), trajectory(1.0), trajectory(None, EndReason.SESSION_LOST)]
    return EvaluationReport.from_trajectories(name, played, [t.reward for t in played], seconds=2.0)


def test_an_interval_of_95_percent_holds_the_true_mean_in_95_percent_of_samples() -> None:
    generator = random.Random(0)
    hits = 0
    for _ in range(2000):
        interval = mean_interval([generator.choice([-1.0, 0.0, 1.0]) for _ in range(400)])
        hits += interval.low <= 0.0 <= interval.high
    assert 0.935 <= hits / 2000 <= 0.965


def test_the_mean_of_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least one"):
        mean_interval([])


def test_failed_episodes_are_counted_and_are_not_in_the_mean() -> None:
    found = report()
    assert found.returns.mean == pytest.approx(1 / 3)
    assert (found.returns.count, found.failed) == (3, 1)
    assert found.end_reasons == {"done": 3, "session_lost": 1}


def test_an_evaluation_without_any_reward_says_how_its_episodes_ended() -> None:
    with pytest.raises(RolloutFailureError, match="session_lost"):
        EvaluationReport.from_trajectories("x", [trajectory(None, EndReason.SESSION_LOST)], [None], 1.0)


def test_the_table_fits_a_terminal_of_80_columns_and_names_every_row() -> None:
    console = Console(width=80, file=io.StringIO())
    with console.capture() as capture:
        console.print(comparison_table("Result", [report("before, sampled")], {"optimal": -0.0466}))
    text = capture.get()
    for words in ("before, sampled", "+0.3333", "95% interval", "optimal", "-0.0466", "exact", "failed"):
        assert words in text


def test_a_learning_curve_is_drawn_from_a_log(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "curve.png"
    log = [{"step": i, "reward": -0.4 + i / 100} for i in range(1, 30)] + [{"step": 30, "train_runtime": 1.0}]
    learning_curve(path, log, title="t", before=[report("before")], after=[report("after")], references={"best": 0.1})
    assert path.read_bytes().startswith(b"\x89PNG")
    assert path.stat().st_size > 10_000


def test_a_log_without_rewards_says_what_to_set(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="logging_steps"):
        learning_curve(tmp_path / "x.png", [{"step": 1, "loss": 0.0}], title="t")
