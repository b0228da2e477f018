"""The environment's own reward."""

from __future__ import annotations

from openenv_trl.rewards.function import RewardFunction
from openenv_trl.rollout.trajectory import Trajectory


def environment_reward(*, unfinished: float = 0.0, name: str = "environment_reward") -> RewardFunction:
    """The sum of the rewards that the environment gave.

    Args:
        unfinished: Added where the model left the episode without an end: it stopped acting, acted invalidly too
            often, or ran out of turns or tokens. In a game where a loss costs 1, a model that gives up gets 0, which
            beats losing, and so it learns to give up; ``unfinished=-1.0`` makes that as bad as losing.
        name: What TRL logs it by.

    Returns:
        A reward function for ``GRPOTrainer(reward_funcs=...)``. Failed episodes, and those whose actions the
        environment did not reward at all, get None: TRL leaves them out.
    """

    def score(trajectory: Trajectory) -> float | None:
        left = trajectory.end_reason.is_unfinished
        reward = trajectory.reward
        if reward is None:
            # Nothing was rewarded yet. That the episode was left is known all the same, where that has a price.
            return unfinished if left and unfinished else None
        return reward + unfinished if left else reward

    return RewardFunction(name, score)
