"""EnvironmentRollout under the settings that people train with, each in a real GRPOTrainer over a real server."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig

from openenv_trl.rewards import environment_reward, turn_penalty
from openenv_trl.rollout import Trajectory, read_parquet
from openenv_trl.training import EnvironmentRollout

from .scripted import LIMITS, PROMPT, MakeTrainer, Replies, call, rows


def stand(*_: Any) -> str:
    return call("stand")


def seeds(folder: Path) -> dict[str, list[tuple[int, int]]]:
    """For each batch, in the order they were played, the task and the luck of each episode."""
    files = sorted(folder.glob("*.parquet"))
    return {
        path.stem: [(t.task.reset["task_seed"], t.task.reset["seed"]) for t in read_parquet(path)] for path in files
    }


class Run:
    """A training run over scripted replies, its batches and its log."""

    def __init__(self, make_trainer: MakeTrainer, url: str, folder: Path, **settings: Any) -> None:
        self.batches: list[dict[str, Any]] = []
        choose = settings.pop("choose", stand)
        resume = settings.pop("resume", None)
        tokenizer_change = settings.pop("tokenizer", lambda _: None)
        with EnvironmentRollout(url, limits=LIMITS, shared_randomness="task", trajectory_dir=folder) as rollout:
            data = rollout.prepare_dataset(settings.pop("data", rows(24)))
            self.trainer = make_trainer(rollout, data, settings.pop("parts", None), **settings)
            tokenizer_change(self.trainer.processing_class)
            if choose is not None:
                Replies(self.trainer, choose)
            score = self.trainer._generate_and_score_completions
            self.trainer._generate_and_score_completions = lambda inputs: self._keep(score(inputs))  # type: ignore
            self.before = {n: p.detach().clone() for n, p in self.trainer.model.named_parameters()}
            self.trainer.train(resume_from_checkpoint=resume)
            self.pool_metrics = rollout.metrics
        self.seeds = seeds(folder)
        self.trajectories: list[Trajectory] = read_parquet(folder)
        self.log = self.trainer.state.log_history

    def _keep(self, batch: dict[str, Any]) -> dict[str, Any]:
        self.batches.append(batch)
        return batch

    @property
    def trained_tokens(self) -> list[int]:
        batch = self.batches[0]
        return [int(n) for n in (batch["completion_mask"] * batch["tool_mask"]).sum(1)]

    def moved(self, name: str) -> bool:
        parameters = dict(self.trainer.model.named_parameters())
        return any(not torch.equal(p, parameters[n]) for n, p in self.before.items() if name in n)


@pytest.mark.parametrize(
    ("settings", "batches", "rows_each"),
    [
        ({"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2}, 2, 8),
        ({"per_device_train_batch_size": 4, "steps_per_generation": 4, "gradient_accumulation_steps": 2}, 1, 16),
        ({"per_device_train_batch_size": 8, "num_iterations": 2}, 1, 8),
    ],
    ids=["accumulation", "steps per generation", "iterations"],
)
def test_a_generation_batch_is_played_once_however_it_is_cut_into_steps(
    make_trainer: MakeTrainer,
    blackjack_url: str,
    tmp_path: Path,
    settings: dict[str, int],
    batches: int,
    rows_each: int,
) -> None:
    run = Run(make_trainer, blackjack_url, tmp_path / "t", max_steps=2, **settings)
    assert [len(batch) for batch in run.seeds.values()] == [rows_each] * batches
    tasks = [task for batch in run.seeds.values() for task, _ in batch]
    assert tasks == [task for task in range(batches * rows_each // 4) for _ in range(4)], "no prompt lost or repeated"
    assert [entry["step"] for entry in run.log if "loss" in entry] == [1, 2]


@pytest.mark.parametrize("accumulation", [1, 2])
def test_a_run_taken_up_again_plays_the_prompts_and_the_luck_that_were_to_come(
    make_trainer: MakeTrainer, blackjack_url: str, tmp_path: Path, accumulation: int
) -> None:
    settings: dict[str, Any] = {
        "per_device_train_batch_size": 8 // accumulation,
        "gradient_accumulation_steps": accumulation,
        "shuffle_dataset": True,
        "save_strategy": "steps",
        "save_steps": 1,
        "max_steps": 3,
    }
    whole = Run(make_trainer, blackjack_url, tmp_path / "whole", **settings)
    resumed = Run(make_trainer, blackjack_url, tmp_path / "resumed", resume=str(tmp_path / "checkpoint-1"), **settings)
    assert [len(batch) for batch in whole.seeds.values()] == [8] * 3
    assert len({task for batch in whole.seeds.values() for task, _ in batch}) == 6, "six prompts, none repeated"
    assert resumed.seeds == {name: whole.seeds[name] for name in list(whole.seeds)[1:]}


def test_evaluations_during_training_play_the_same_tasks_each_time_over_the_same_sessions(
    make_trainer: MakeTrainer, blackjack_url: str, tmp_path: Path
) -> None:
    with EnvironmentRollout(blackjack_url) as rollout:
        evaluation = rollout.prepare_dataset([{"prompt": PROMPT, "task_seed": 900 + i} for i in range(2)])
    run = Run(
        make_trainer,
        blackjack_url,
        tmp_path / "t",
        parts={"eval_dataset": evaluation},
        eval_strategy="steps",
        eval_steps=1,
        num_generations_eval=2,
        per_device_eval_batch_size=4,
    )
    names = list(run.seeds)
    assert names == ["eval_000000_0", "train_000000_0_0", "train_000001_0_0"], (
        "the second evaluation is the first again"
    )
    assert sorted(task for task, _ in run.seeds["eval_000000_0"]) == [900, 900, 901, 901]
    evaluated = [entry for entry in run.log if "eval_reward" in entry]
    assert [entry["step"] for entry in evaluated] == [1, 2]
    assert evaluated[0]["eval_reward"] == evaluated[1]["eval_reward"]
    assert "eval_rollout/reward" in evaluated[0]


def test_lora_trains_its_adapter_and_nothing_else(
    make_trainer: MakeTrainer, blackjack_url: str, tmp_path: Path
) -> None:
    run = Run(
        make_trainer,
        blackjack_url,
        tmp_path / "t",
        parts={"peft_config": LoraConfig(r=2, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")},
        beta=0.1,
        choose=lambda i, _: call("hit" if i % 2 else "stand"),
    )
    assert run.moved("lora_")
    assert not run.moved("base_layer")
    assert [entry["step"] for entry in run.log if "kl" in entry] == [1, 2]


def test_the_models_own_generation_with_lora_goes_through_the_adapter(
    make_trainer: MakeTrainer, blackjack_url: str, tmp_path: Path
) -> None:
    lora = LoraConfig(r=2, target_modules=["q_proj"], task_type="CAUSAL_LM")
    run = Run(make_trainer, blackjack_url, tmp_path / "t", parts={"peft_config": lora}, choose=None, max_steps=1)
    assert len(run.trajectories) == 8
    assert all(trajectory.completion_ids for trajectory in run.trajectories)


def test_episodes_that_were_cut_are_masked_where_that_is_wanted(
    make_trainer: MakeTrainer, blackjack_url: str, tmp_path: Path
) -> None:
    def endless_or_not(i: int, _: str) -> str:
        return "so " * 60 if i % 2 else call("stand")

    for wanted in (False, True):
        run = Run(
            make_trainer,
            blackjack_url,
            tmp_path / str(wanted),
            choose=endless_or_not,
            max_steps=1,
            mask_truncated_completions=wanted,
        )
        cut = sum(t.end_reason.value == "max_tokens" for t in run.trajectories)
        assert cut == 4
        assert run.trained_tokens.count(0) == (cut if wanted else 0)


def test_a_padding_token_that_is_the_end_token_is_trained_where_it_ends_a_message(
    make_trainer: MakeTrainer, blackjack_url: str, tmp_path: Path
) -> None:
    def pad_with_end(tokenizer: Any) -> None:
        tokenizer.pad_token = tokenizer.eos_token

    run = Run(
        make_trainer,
        blackjack_url,
        tmp_path / "t",
        tokenizer=pad_with_end,
        choose=lambda i, _: call("hit" if i % 2 else "stand"),
        max_steps=1,
    )
    tokenizer: Any = run.trainer.processing_class
    assert tokenizer.pad_token_id == tokenizer.eos_token_id
    assert sorted(run.trained_tokens) == sorted(sum(t.mask) for t in run.trajectories)
    ends = [
        sum(on for token, on in zip(t.completion_ids, t.mask, strict=True) if token == tokenizer.eos_token_id)
        for t in run.trajectories
    ]
    assert ends == [len(t.turns) for t in run.trajectories], "each message's own end, and no padding"


def test_several_rewards_are_weighed_by_the_trainer_and_kept_by_name(
    make_trainer: MakeTrainer, blackjack_url: str, tmp_path: Path
) -> None:
    run = Run(
        make_trainer,
        blackjack_url,
        tmp_path / "t",
        parts={"reward_funcs": [environment_reward(), turn_penalty(per_turn=-1.0)]},
        reward_weights=[1.0, 0.25],
        max_steps=1,
    )
    logged = run.log[0]
    assert logged["rewards/turn_penalty/mean"] == -1.0
    assert logged["reward"] == pytest.approx(logged["rewards/environment_reward/mean"] - 0.25)
    assert {frozenset(t.rewards) for t in run.trajectories} == {frozenset({"environment_reward", "turn_penalty"})}


def test_a_run_inside_a_running_event_loop_works_as_in_a_notebook(
    make_trainer: MakeTrainer, blackjack_url: str, tmp_path: Path
) -> None:
    async def cell() -> Run:
        return Run(make_trainer, blackjack_url, tmp_path / "t", max_steps=1)

    assert len(asyncio.run(cell()).trajectories) == 8


def test_a_server_that_allows_one_session_plays_a_whole_batch_one_after_another(
    make_trainer: MakeTrainer, narrow_url: str
) -> None:
    with EnvironmentRollout(narrow_url, limits=LIMITS) as rollout:
        trainer = make_trainer(rollout, rollout.prepare_dataset(rows()), max_steps=1)
        Replies(trainer, lambda *_: call("move", '{"number": 9}'))
        trainer.train()
        assert rollout.metrics["failed_fraction"] == 0.0
        assert rollout.metrics["reward"] == 9.0


def test_a_call_that_took_too_long_gives_its_place_to_the_next_episode(
    make_trainer: MakeTrainer, unruly_url: str, tmp_path: Path
) -> None:
    limits = LIMITS.model_copy(update={"step_timeout_s": 2.0, "max_attempts": 1, "connect_timeout_s": 60.0})
    released = tmp_path / "released"
    data = [
        {"prompt": PROMPT, "seed": i, "way": "step hangs" if i == 0 else "none", "until": str(released)}
        for i in range(2)
    ]
    with EnvironmentRollout(unruly_url, limits=limits, sessions_per_server=1) as rollout:
        trainer = make_trainer(
            rollout, rollout.prepare_dataset(data), max_steps=1, per_device_train_batch_size=4, num_generations=2
        )
        Replies(trainer, stand)
        try:
            trainer.train()
        finally:
            released.touch()
        assert rollout.metrics["end/step_timeout"] == 0.5
        assert rollout.metrics["end/done"] == 0.5, "in the places of those that hang, which did so to the end"
