"""A step whose batch broke is left out and said; the run goes on, until something is plainly broken for good."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from openenv_trl.errors import ConfigurationError, RolloutFailureError
from openenv_trl.rollout import read_parquet
from openenv_trl.training import CurriculumLevel, EnvironmentRollout, StagedCurriculum

from .scripted import LIMITS, PROMPT, MakeTrainer, Replies, call


def batches(*ways: str) -> list[dict[str, Any]]:
    """Rows of which two make a batch; ``a+b`` is a batch of both."""
    pairs = [way.split("+") * 2 for way in ways]
    return [
        {"prompt": PROMPT, "seed": i, "way": pair[i % 2]} for i, pair in enumerate(p for p in pairs for _ in (0, 1))
    ]


class Skips:
    """A run over such batches: its weights before and after each step."""

    def __init__(self, make_trainer: MakeTrainer, url: str, rows: list[dict[str, Any]], **options: Any) -> None:
        self.error: Exception | None = None
        self.weights: list[torch.Tensor] = []
        with EnvironmentRollout(url, limits=LIMITS.model_copy(update={"max_attempts": 1}), **options) as rollout:
            self.trainer = make_trainer(
                rollout,
                rollout.prepare_dataset(rows),
                {"reward_funcs": [lambda completions, **_: [float(i % 2) for i in range(len(completions))]]},
                max_steps=len(rows) // 2,
                weight_decay=0.1,
            )
            Replies(self.trainer, lambda *_: call("stand"))
            step = self.trainer.training_step
            self.trainer.training_step = lambda *args, **kw: self._keep(step(*args, **kw))  # type: ignore
            try:
                self.trainer.train()
            except RolloutFailureError as error:
                self.error = error
        self._keep(None)
        self.log = [entry for entry in self.trainer.state.log_history if "loss" in entry]

    def _keep(self, result: Any) -> Any:
        self.weights.append(torch.cat([p.detach().flatten().clone() for p in self.trainer.model.parameters()]))
        return result

    def moved(self) -> list[bool]:
        return [not torch.equal(a, b) for a, b in zip(self.weights, self.weights[1:], strict=False)]


def test_a_step_of_which_nothing_is_sound_is_skipped_and_moves_no_weight(
    make_trainer: MakeTrainer, unruly_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    run = Skips(make_trainer, unruly_url, batches("none", "step raises", "none"))
    assert run.error is None
    assert run.moved() == [True, False, True]
    assert run.log[1]["loss"] == 0.0
    said = [r.getMessage() for r in caplog.records if "is skipped" in r.getMessage()]
    assert len(said) == 1
    assert "8 of 8" in said[0]
    assert "the table broke" in said[0]


def test_a_part_that_failed_is_left_out_and_said_once(
    make_trainer: MakeTrainer, unruly_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    run = Skips(make_trainer, unruly_url, batches("none+reset raises"))
    assert run.moved() == [True]
    said = [r.getMessage() for r in caplog.records if "episodes failed" in r.getMessage()]
    assert len(said) == 1
    assert "4 of 8 episodes failed" in said[0]
    assert "4 environment_error" in said[0]
    assert "trains on the other 4" in said[0]


def test_a_batch_of_which_more_failed_than_allowed_is_skipped_whole(make_trainer: MakeTrainer, unruly_url: str) -> None:
    run = Skips(make_trainer, unruly_url, batches("none", "none+reset raises", "none"), max_failed_fraction=0.4)
    assert run.moved() == [True, False, True]


def test_after_too_many_in_a_row_training_stops_with_the_cause_and_the_servers_state(
    make_trainer: MakeTrainer, unruly_url: str, tmp_path: Path
) -> None:
    rows = batches("step raises", "none", "step raises", "step raises", "none")
    run = Skips(make_trainer, unruly_url, rows, max_skipped_steps=1, trajectory_dir=tmp_path / "t")
    assert "2 steps in a row" in str(run.error)
    assert "8 environment_error (step: " in str(run.error)
    assert f"{unruly_url} is healthy" in str(run.error)
    assert len(read_parquet(tmp_path / "t")) == 32, "the last batch is stored too: it is what one wants to look at"


def test_a_run_taken_up_again_skips_a_first_batch_of_refused_rows_and_a_new_one_ends_with_it(
    make_trainer: MakeTrainer, unruly_url: str, tmp_path: Path
) -> None:
    def train(ways: list[str], **resume: Any) -> int:
        with EnvironmentRollout(unruly_url, limits=LIMITS) as rollout:
            data = rollout.prepare_dataset(batches(*ways))
            trainer = make_trainer(
                rollout, data, max_steps=3, save_strategy="steps", save_steps=1, shuffle_dataset=False
            )
            Replies(trainer, lambda *_: call("stand"))
            trainer.train(**resume)
            return int(trainer.state.global_step)

    with pytest.raises(ConfigurationError, match="there is no deck of that name"):
        train(["reset refuses", "none", "none"])
    assert train(["none", "reset refuses", "none"]) == 3
    assert train(["none", "reset refuses", "none"], resume_from_checkpoint=str(tmp_path / "checkpoint-1")) == 3


def test_a_curriculum_advances_and_is_taken_up_again_from_a_checkpoint(
    make_trainer: MakeTrainer, unruly_url: str, tmp_path: Path
) -> None:
    levels = tuple(CurriculumLevel(name=name, reset={"level": name}) for name in ("first", "second", "third", "fourth"))
    curriculum = StagedCurriculum(levels=levels, window=8, threshold=1.0, review_fraction=0.0)

    def play(name: str, **resume: Any) -> tuple[list[str], list[float], dict[str, Any]]:
        folder = tmp_path / name
        with EnvironmentRollout(unruly_url, limits=LIMITS, curriculum=curriculum, trajectory_dir=folder) as rollout:
            data = [{"prompt": PROMPT, "seed": i} for i in range(8)]
            trainer = make_trainer(
                rollout, rollout.prepare_dataset(data), max_steps=3, save_strategy="steps", save_steps=1
            )
            Replies(trainer, lambda *_: call("stand"))
            trainer.train(**resume)
            logged = [e["rollout/curriculum/level"] for e in trainer.state.log_history if "rollout/reward" in e]
            state = rollout.curricula.state()
        files = sorted(folder.glob("*.parquet"))
        return [read_parquet(file)[0].task.reset["level"] for file in files], logged, state

    played, logged, state = play("whole")
    assert played == ["first", "second", "third"]
    assert logged == [1.0, 2.0, 3.0]
    assert state == {"": {"level": "fourth", "recent": []}}
    resumed, _, state_again = play("resumed", resume_from_checkpoint=str(tmp_path / "checkpoint-1"))
    assert resumed == ["second", "third"]
    assert state_again == state
