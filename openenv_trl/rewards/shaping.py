"""Small rewards beside the environment's: for the format, and against wasted turns."""

from __future__ import annotations

from openenv_trl.rewards.function import RewardFunction


def format_reward(*, valid: float = 0.0, invalid: float = -0.1) -> RewardFunction:
    """``valid`` where every action was well formed, ``invalid`` for each that was not.

    Args:
        valid: The reward of an episode without an invalid action.
        invalid: The reward of each invalid action.
    """
    raise NotImplementedError


def turn_penalty(*, per_turn: float = -0.01, free_turns: int = 0) -> RewardFunction:
    """``per_turn`` for each message of the model beyond the first ``free_turns``."""
    raise NotImplementedError
