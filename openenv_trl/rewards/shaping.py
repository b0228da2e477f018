"""Small rewards beside the environment's: for the format, and against wasted turns."""

from __future__ import annotations

from openenv_trl.rewards.function import RewardFunction


def format_reward(*, valid: float = 0.0, invalid: float = -0.1) -> RewardFunction:
    """``valid`` where every action was well formed, else ``invalid`` for each that was not.

    Args:
        valid: The reward of an episode without an invalid action.
        invalid: The reward of each invalid action.
    """
    return RewardFunction(
        "format_reward",
        lambda trajectory: trajectory.invalid_actions * invalid if trajectory.invalid_actions else valid,
    )


def turn_penalty(*, per_turn: float = -0.01, free_turns: int = 0) -> RewardFunction:
    """``per_turn`` for each message of the model beyond the first ``free_turns``.

    Args:
        per_turn: The reward of one such message; negative to make the model brief.
        free_turns: Messages that cost nothing.
    """
    return RewardFunction("turn_penalty", lambda trajectory: per_turn * max(0, len(trajectory.turns) - free_turns))
