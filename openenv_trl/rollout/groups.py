"""Trajectories as the groups that GRPO compares: mean, spread, advantages, and whether they began alike.

The numbers are TRL's (``GRPOTrainer`` with ``multi_objective_aggregation="sum_then_normalize"``): the standard
deviation is the sample's; what has no reward is left out of it and of the mean, and gets the advantage 0.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from openenv_trl.errors import ConfigurationError
from openenv_trl.rollout.trajectory import Trajectory

_SAME = 1e-8  # a standard deviation below this is none, in TRL's metrics too
_EPSILON = 1e-4  # TRL's, beside the standard deviation


class ScaleRewards(str, Enum):
    """What advantages are divided by: ``GRPOConfig.scale_rewards``."""

    GROUP = "group"
    """The standard deviation of the group's rewards."""
    BATCH = "batch"
    """The standard deviation of all rewards given."""
    NONE = "none"
    """Nothing."""


@dataclass(frozen=True)
class TrajectoryGroup:
    """The generations of one prompt.

    Attributes:
        name: The group's name: ``Task.group``; None where the tasks name none.
        trajectories: Its episodes, in the order of their index.
        rewards: What each counts for; None where it counts for nothing.
        mean: Of the rewards that are there; None without any.
        std: Of the rewards that are there; None with fewer than two.
        advantages: One for each episode; 0.0 where it has no reward.
    """

    name: str | int | None
    trajectories: tuple[Trajectory, ...]
    rewards: tuple[float | None, ...]
    mean: float | None
    std: float | None
    advantages: tuple[float, ...]

    @property
    def environment(self) -> str:
        """The environment that it was played in; "" where the run had one, or where its episodes had different ones."""
        names = {each.environment for each in self.trajectories}
        return names.pop() if len(names) == 1 else ""

    @property
    def failed(self) -> tuple[Trajectory, ...]:
        """Those that failed."""
        return tuple(each for each in self.trajectories if each.end_reason.is_failure)

    @property
    def first_observations(self) -> Counter[str]:
        """How often each first observation was met, in episodes that did not fail; one alone where all began alike."""
        return Counter(each.first_observation for each in self.trajectories if not each.end_reason.is_failure)

    @property
    def teaches(self) -> bool:
        """Whether the rewards differ: otherwise the advantages are 0, and the group moves nothing."""
        return self.std is not None and self.std > _SAME


def group_trajectories(
    trajectories: Sequence[Trajectory],
    *,
    scale_rewards: ScaleRewards | str = ScaleRewards.GROUP,
    weights: Mapping[str, float] | None = None,
    group_size: int | None = None,
) -> list[TrajectoryGroup]:
    """Put trajectories in their groups.

    Args:
        trajectories: Of one batch or many, stored or just played. They may come from several processes.
        scale_rewards: As in ``GRPOConfig``. With "batch", give the trajectories of one batch.
        weights: The weight of each reward function, by name; the others then count for nothing. None: each counts
            for 1, and where none was called the environment's own reward counts.
        group_size: Put so many in a row together where their tasks name no group; None leaves each by itself.

    Returns:
        The groups, in the order in which their first trajectories come.

    Raises:
        ConfigurationError: A setting cannot be used, or a weight is for a source that no trajectory has.
    """
    scale = _scale(scale_rewards)
    _check(trajectories, weights, group_size)
    members: dict[tuple[object, ...], list[Trajectory]] = {}
    unnamed = 0
    for trajectory in trajectories:
        name = trajectory.task.group
        if name is None:
            key: tuple[object, ...] = ("unnamed", unnamed // (group_size or 1))
            unnamed += 1
        else:
            key = ("named", trajectory.environment, name)
        members.setdefault(key, []).append(trajectory)
    batch_std = _std([reward for each in trajectories if (reward := total_reward(each, weights)) is not None])
    return [
        _group(sorted(group, key=lambda each: each.task.index), weights, scale, batch_std) for group in members.values()
    ]


def total_reward(trajectory: Trajectory, weights: Mapping[str, float] | None = None) -> float | None:
    """The weighted sum of a trajectory's rewards; None where there is none, as TRL sums them.

    Args:
        trajectory: Whose ``rewards`` are summed; parts of reward functions (``compose/format``) are in their wholes.
        weights: By name; None: 1 for each, and the environment's own reward where no reward function was called.
    """
    if weights is None and not trajectory.rewards:
        return trajectory.reward
    if weights is None:
        weights = {name: 1.0 for name in trajectory.rewards if "/" not in name}
    given = [(weight, trajectory.rewards.get(name)) for name, weight in weights.items()]
    scored = [weight * reward for weight, reward in given if reward is not None]
    return sum(scored) if scored else None


def _group(
    trajectories: list[Trajectory],
    weights: Mapping[str, float] | None,
    scale: ScaleRewards,
    batch_std: float | None,
) -> TrajectoryGroup:
    rewards = tuple(total_reward(each, weights) for each in trajectories)
    given = [reward for reward in rewards if reward is not None]
    mean, std = (sum(given) / len(given) if given else None), _std(given)
    divisor = {ScaleRewards.GROUP: std, ScaleRewards.BATCH: batch_std, ScaleRewards.NONE: 1.0 - _EPSILON}[scale]
    advantages = tuple(
        0.0 if reward is None or mean is None or divisor is None else (reward - mean) / (divisor + _EPSILON)
        for reward in rewards
    )
    return TrajectoryGroup(trajectories[0].task.group, tuple(trajectories), rewards, mean, std, advantages)


def _std(values: Sequence[float]) -> float | None:
    if len(values) < 2:
        return None
    mean = sum(values) / len(values)
    return math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1))


def _scale(given: ScaleRewards | str) -> ScaleRewards:
    try:
        return ScaleRewards(given)
    except ValueError:
        choices = [choice.value for choice in ScaleRewards]
        raise ConfigurationError(f"scale_rewards={given!r} must be one of {choices}.") from None


def _check(trajectories: Sequence[Trajectory], weights: Mapping[str, float] | None, group_size: int | None) -> None:
    if group_size is not None and group_size < 1:
        raise ConfigurationError(f"group_size={group_size} must be at least 1.")
    known = {name for each in trajectories for name in each.rewards}
    unknown = [name for name in weights or () if name not in known]
    if unknown and trajectories:
        raise ConfigurationError(f"No trajectory has a reward of {unknown}; the sources are {sorted(known)}.")
