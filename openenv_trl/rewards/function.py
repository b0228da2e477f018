"""What a reward function is here: a name, and a score of a trajectory, called as TRL calls it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from openenv_trl.rollout.trajectory import Trajectory


class RewardFunction:
    """A reward function that TRL can call, from a function of one trajectory.

    TRL calls it with keywords only, a list each; ``trajectory`` is the one it reads. TRL logs it by its
    ``__name__``.

    Args:
        name: What TRL logs it by.
        score: The reward of one trajectory; None where there is nothing to learn from it. It is never asked
            about a failed trajectory, whose reward is always None.
    """

    def __init__(self, name: str, score: Callable[[Trajectory], float | None]) -> None:
        self.__name__ = name
        self.score = score

    def __call__(self, **columns: Any) -> list[float | None]:
        """The reward of each trajectory.

        Raises:
            ConfigurationError: There is no ``trajectory`` column, so the rollouts did not come from this
                package.
        """
        raise NotImplementedError
