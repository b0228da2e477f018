"""Rewards and advantages of a group: what TRL's trainer leaves to its worker.

Source: group-relative advantages of GRPO (Shao et al. 2024, arXiv:2402.03300), with TRL's rules for rewards that are
missing: a function that gives None does not count for that episode, and an episode for which all give None is left out
of the mean and the deviation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

Value = float | None


def total_rewards(by_function: Sequence[Sequence[Value]], weights: Sequence[float]) -> list[Value]:
    """The weighted sum of each episode's rewards.

    Args:
        by_function: For each function its reward of each episode; None, NaN and infinity do not count.
        weights: One for each function.

    Returns:
        One an episode; None where no function gave a number.
    """
    totals: list[Value] = []
    for rewards in zip(*by_function, strict=True):
        given = [
            weight * reward
            for weight, reward in zip(weights, rewards, strict=True)
            if reward is not None and math.isfinite(reward)
        ]
        totals.append(sum(given) if given else None)
    return totals


def group_advantages(rewards: Sequence[Value], scale: Literal["group", "none"]) -> list[Value]:
    """Each reward's distance from the mean of its group, over the rewards that there are.

    Args:
        rewards: Of the group's episodes; None where there is none.
        scale: "group" divides by the group's standard deviation (of the population, as TRL's asynchronous trainer
            has it), "none" by nothing.

    Returns:
        One an episode; None where there is no reward. All 0.0 where the rewards are equal.
    """
    mean, deviation = mean_and_deviation(rewards)
    if deviation == 0.0:
        return [None if reward is None else 0.0 for reward in rewards]
    divisor = deviation + 1e-8 if scale == "group" else 1.0
    return [None if reward is None else (reward - mean) / divisor for reward in rewards]


def mean_and_deviation(rewards: Sequence[Value]) -> tuple[float, float]:
    """Mean and standard deviation (of the population) of the rewards that there are; NaN twice where there are none."""
    given = [reward for reward in rewards if reward is not None]
    if not given:
        return math.nan, math.nan
    if min(given) == max(given):
        return given[0], 0.0  # exactly, whatever the sum's rounding
    mean = math.fsum(given) / len(given)
    return mean, math.sqrt(math.fsum((reward - mean) ** 2 for reward in given) / len(given))
