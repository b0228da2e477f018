"""Several reward functions as one."""

from __future__ import annotations

from collections.abc import Sequence

from openenv_trl.rewards.function import RewardFunction


def compose(
    functions: Sequence[RewardFunction], weights: Sequence[float] | None = None, *, name: str | None = None
) -> RewardFunction:
    """The weighted sum of reward functions; None where any of them is None.

    Args:
        functions: What to sum.
        weights: One for each function; all 1.0 if None.
        name: What TRL logs it by; made of the functions' names if None.

    Raises:
        ConfigurationError: There is not one weight for each function.
    """
    raise NotImplementedError
