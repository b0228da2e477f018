"""Reward functions over trajectories, in the form that TRL calls them."""

from openenv_trl.rewards.composition import ComposedReward, by_environment, compose, gate
from openenv_trl.rewards.environment import environment_reward
from openenv_trl.rewards.function import RewardFunction, Scored
from openenv_trl.rewards.judge import JudgeReward, JudgeSettings
from openenv_trl.rewards.rubric import RubricReward, StepView
from openenv_trl.rewards.settings import RewardSettings, reward_from_settings
from openenv_trl.rewards.shaping import discounted_reward, format_reward, length_reward, turn_penalty

__all__ = [
    "ComposedReward",
    "JudgeReward",
    "JudgeSettings",
    "RewardFunction",
    "RewardSettings",
    "RubricReward",
    "Scored",
    "StepView",
    "by_environment",
    "compose",
    "discounted_reward",
    "environment_reward",
    "format_reward",
    "gate",
    "length_reward",
    "reward_from_settings",
    "turn_penalty",
]
