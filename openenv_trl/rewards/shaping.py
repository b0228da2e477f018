"""Small rewards beside the environment's: for the format, for length, against wasted turns, and discounted steps."""

from __future__ import annotations

from openenv_trl.errors import ConfigurationError
from openenv_trl.rewards.function import RewardFunction
from openenv_trl.rollout.trajectory import Trajectory


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


def length_reward(*, max_tokens: int, free_tokens: int | None = None, too_long: float = -1.0) -> RewardFunction:
    """0 up to ``free_tokens`` of the model's own, falling to ``too_long`` at ``max_tokens``, and staying there.

    Only what the model wrote counts: an environment that says much costs nothing.

    Source: the soft overlong punishment of DAPO (Yu et al. 2025, equation 13), there over the whole response.

    Args:
        max_tokens: Tokens of the model from which the full price is due.
        free_tokens: Tokens that cost nothing; three quarters of ``max_tokens`` if None.
        too_long: The reward at ``max_tokens``; negative.

    Raises:
        ConfigurationError: ``free_tokens`` does not lie between 0 and ``max_tokens``.
    """
    free = max_tokens * 3 // 4 if free_tokens is None else free_tokens
    if not 0 <= free < max_tokens:
        raise ConfigurationError(f"free_tokens={free} must lie between 0 and max_tokens={max_tokens}, and below it.")

    def score(trajectory: Trajectory) -> float:
        # Of a policy without ids only the turns' own counts are known.
        own = sum(trajectory.mask) if trajectory.token_exact else sum(t.completion_tokens for t in trajectory.turns)
        return too_long * min(max(own - free, 0) / (max_tokens - free), 1.0)

    return RewardFunction("length_reward", score)


def discounted_reward(*, gamma: float = 0.99, unfinished: float = 0.0) -> RewardFunction:
    """The sum of the step rewards, step ``t`` (from 0) weighed by ``gamma ** t``: sooner is worth more.

    Source: the discounted return of Sutton and Barto, "Reinforcement Learning", equation 3.8.

    Args:
        gamma: The discount of each action, from 0 to 1.
        unfinished: Added, undiscounted, where the model left the episode without an end: see `environment_reward`.

    Returns:
        A reward function. A step that the environment did not reward counts as 0.0; an episode whose actions it did
        not reward at all gets None.

    Raises:
        ConfigurationError: ``gamma`` does not lie between 0 and 1.
    """
    if not 0.0 <= gamma <= 1.0:
        raise ConfigurationError(f"gamma={gamma} must lie between 0 and 1.")

    def score(trajectory: Trajectory) -> float | None:
        left = unfinished if trajectory.end_reason.is_unfinished else 0.0
        if trajectory.reward is None:
            return left or None
        return sum(gamma**step * (reward or 0.0) for step, reward in enumerate(trajectory.step_rewards)) + left

    return RewardFunction("discounted_reward", score)
