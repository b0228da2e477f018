"""Reward functions over trajectories, in the form that TRL calls them."""

from openenv_trl.rewards.composition import compose
from openenv_trl.rewards.environment import environment_reward
from openenv_trl.rewards.function import RewardFunction
from openenv_trl.rewards.shaping import format_reward, turn_penalty

__all__ = ["RewardFunction", "compose", "environment_reward", "format_reward", "turn_penalty"]
