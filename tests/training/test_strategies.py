"""Strategies under a real trainer: it gets exactly the rows it asked for, and the log says what was dropped."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from openenv_trl.errors import ConfigurationError
from openenv_trl.rollout import EndReason, HedgeSlowCalls, OverSampleGroups, RolloutStrategies
from openenv_trl.training import EnvironmentRollout
from openenv_trl.training.arguments import EnvironmentArguments

from .scripted import LIMITS, MakeTrainer, Play, call, rows


@pytest.fixture
def play(make_trainer: MakeTrainer, tmp_path: Path) -> Callable[..., Play]:
    return lambda url, dataset, choose, **options: Play(make_trainer, url, tmp_path, dataset, choose, **options)


def test_over_sampled_groups_give_the_trainer_its_rows_and_no_more(
    play: Callable[..., Play], blackjack_url: str
) -> None:
    strategies = RolloutStrategies(over_sampling=OverSampleGroups(extra=2))
    played = play(blackjack_url, rows(), lambda *_: call("stand"), shared_randomness="task", strategies=strategies)
    assert len(played.trajectories) == 8
    assert [len(ids) for ids in (played.batches[0]["completion_ids"], played.trajectories)] == [8, 8]
    assert {t.end_reason for t in played.trajectories} == {EndReason.DONE}
    groups = [t.task.group for t in played.trajectories]
    assert [groups.count(name) for name in dict.fromkeys(groups)] == [4, 4]
    assert len({t.task.reset["seed"] for t in played.trajectories}) == 8  # each with luck of its own
    assert played.log["rollout/dropped/surplus"] == 4.0
    assert played.log["rollout/dropped/fraction"] == pytest.approx(4 / 12)
    assert played.log["rollout/failed_fraction"] == 0.0


def test_an_environment_that_declares_nothing_is_not_hedged(make_trainer: MakeTrainer, unruly_url: str) -> None:
    strategies = RolloutStrategies(straggler=HedgeSlowCalls())
    with EnvironmentRollout(unruly_url, limits=LIMITS, strategies=strategies) as rollout:
        trainer = make_trainer(rollout, rollout.prepare_dataset(rows()), max_steps=1)
        with pytest.raises(ConfigurationError, match="REPEATABLE = True"):
            trainer.train()


def test_an_experiments_strategies_are_read_and_its_mistakes_told() -> None:
    def arguments(**settings: Any) -> EnvironmentArguments:
        return EnvironmentArguments(environment_urls=["http://x"], prompt="Play.", **settings)

    given = arguments(strategies={"refill": {"type": "fresh", "max_episodes": 3}}, generate_timeout_s=9.0)
    assert given.rollout_strategies().refill.model_dump()["max_episodes"] == 3
    assert given.limits(100).generate_timeout_s == 9.0
    assert arguments().rollout_strategies() == RolloutStrategies()
    with pytest.raises(ConfigurationError, match=r"strategies: it has no field 'refil' \(is 'refill' .*failures\.md"):
        arguments(strategies={"refil": {"type": "fresh"}})
