"""The advantages of groups are the trainer's own, of its formula and of a batch that it really trained on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from hypothesis import given, settings
from hypothesis import strategies as st
from trl import GRPOTrainer
from trl.trainer.utils import nanstd

from openenv_trl.rollout import EndReason, RolloutLimits, Task, Trajectory, Turn, read_parquet
from openenv_trl.rollout.groups import group_trajectories
from openenv_trl.training import EnvironmentRollout


def make(reward: float | None, group: int, index: int) -> Trajectory:
    turns = [] if reward is None else [Turn(rewards=[reward])]
    end = EndReason.STEP_TIMEOUT if reward is None else EndReason.DONE
    task = Task([{"role": "user", "content": "Play."}], group=group, index=index)
    return Trajectory(task, [1], [2, 3], [1, 0], None, turns, end)


def trl_advantages(rewards: list[list[float | None]], scale: str) -> list[float]:
    """What ``GRPOTrainer._generate_and_score_completions`` makes of one reward function's values, with TRL's nanstd."""
    values = torch.tensor([[float("nan") if r is None else r for r in group] for group in rewards], dtype=torch.float64)
    size = values.shape[1]
    flat = values.flatten()
    advantages = flat - torch.nanmean(values, dim=1).repeat_interleave(size)
    std = nanstd(values, dim=1).repeat_interleave(size) if scale == "group" else nanstd(flat).expand_as(flat)
    if scale != "none":
        advantages = advantages / (std + 1e-4)
    return torch.nan_to_num(advantages, nan=0.0).tolist()


REWARDS = st.none() | st.integers(-3, 3).map(float) | st.floats(-10, 10)


@settings(max_examples=80, deadline=None)
@given(
    rewards=st.integers(2, 5).flatmap(
        lambda size: st.lists(st.lists(REWARDS, min_size=size, max_size=size), min_size=1, max_size=4)
    ),
    scale=st.sampled_from(["group", "batch", "none"]),
)
def test_advantages_are_those_that_trl_trains_on(rewards: list[list[float | None]], scale: str) -> None:
    trajectories = [
        make(reward, group, index) for group, values in enumerate(rewards) for index, reward in enumerate(values)
    ]
    groups = group_trajectories(trajectories, scale_rewards=scale)
    found = [advantage for group in groups for advantage in group.advantages]
    assert found == pytest.approx(trl_advantages(rewards, scale), rel=1e-6, abs=1e-6)
    assert [list(group.rewards) for group in groups] == rewards


@pytest.mark.parametrize("scale", ["group", "batch", "none"])
def test_advantages_of_stored_trajectories_are_those_of_the_step_that_was_trained(
    make_trainer: Callable[..., GRPOTrainer], blackjack_url: str, tmp_path: Path, scale: str
) -> None:
    rows = Dataset.from_list([{"prompt": [{"role": "user", "content": "Play."}], "seed": seed} for seed in range(4)])
    folder = tmp_path / "trajectories"
    with EnvironmentRollout(blackjack_url, limits=RolloutLimits(max_turns=2), trajectory_dir=folder) as rollout:
        trainer = make_trainer(rollout, rollout.prepare_dataset(rows), max_steps=1, scale_rewards=scale)
        trained: list[Any] = []
        score = trainer._generate_and_score_completions
        trainer._generate_and_score_completions = lambda inputs: trained.append(score(inputs)) or trained[-1]  # type: ignore
        tokenizer: Any = trainer.processing_class
        reply = tokenizer.encode('<tool_call>\n{"name": "stand", "arguments": {}}\n</tool_call><|im_end|>')
        generations: dict[tuple[int, ...], Iterator[int]] = defaultdict(count)  # of each group: its prompts are equal

        def generate(prompt_ids: Any, *_: Any, **__: Any) -> Any:
            # Every other one of a group stands; the rest says nothing and is given the unfinished reward, so that the
            # rewards of a hand that standing wins differ.
            texts = [
                reply if next(generations[tuple(prompt)]) % 2 else [tokenizer.eos_token_id] for prompt in prompt_ids
            ]
            return texts, None

        trainer._generate_single_turn = generate  # type: ignore[method-assign]
        trainer.train()
    groups = group_trajectories(read_parquet(folder), scale_rewards=scale)
    found = [advantage for group in groups for advantage in group.advantages]
    assert [len(group.trajectories) for group in groups] == [4, 4]
    assert any(found)
    assert found == pytest.approx(trained[0]["advantages"].tolist(), abs=1e-4)
