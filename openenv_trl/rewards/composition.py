"""Several reward functions as one."""

from __future__ import annotations

from collections.abc import Sequence

from openenv_trl.errors import ConfigurationError
from openenv_trl.rewards.function import RewardFunction
from openenv_trl.rollout.trajectory import Trajectory


def compose(
    functions: Sequence[RewardFunction], weights: Sequence[float] | None = None, *, name: str | None = None
) -> RewardFunction:
    """The weighted sum of reward functions; None where any of them is None.

    TRL can weigh reward functions itself (``reward_weights``), but sums over those that are not None: an episode
    without the environment's reward would then be judged by its format alone.

    Args:
        functions: What to sum.
        weights: One for each function; all 1.0 if None.
        name: What TRL logs it by; made of the functions' names if None.

    Raises:
        ConfigurationError: There is nothing to sum, or not one weight for each function.

    Example:
        >>> reward = compose([environment_reward(unfinished=-1.0), format_reward()], [1.0, 0.5])
    """
    chosen = [1.0] * len(functions) if weights is None else list(weights)
    if not functions or len(chosen) != len(functions):
        raise ConfigurationError(
            f"compose needs one weight for each function: it got {len(functions)} functions and {len(chosen)} weights."
        )

    def score(trajectory: Trajectory) -> float | None:
        total = 0.0
        for function, weight in zip(functions, chosen, strict=True):
            value = function.score(trajectory)
            if value is None:
                return None
            total += weight * value
        return total

    return RewardFunction(name or "_".join(function.__name__ for function in functions), score)
