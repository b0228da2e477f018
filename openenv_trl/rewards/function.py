"""What a reward function is here: a name, and a score of a trajectory, called as TRL calls it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from openenv_trl.errors import ConfigurationError
from openenv_trl.rollout.trajectory import Trajectory


class RewardFunction:
    """A reward function that TRL can call, from a function of one trajectory.

    TRL calls it with keywords only, a list each; ``trajectory`` is the one it reads. TRL logs it by its ``__name__``.

    Args:
        name: What TRL logs it by.
        score: The reward of one trajectory; None where there is nothing to learn from it. It is never asked about a
            failed trajectory, whose reward is always None.

    Example:
        >>> fewer_words = RewardFunction("fewer_words", lambda trajectory: -0.001 * sum(trajectory.mask))
    """

    def __init__(self, name: str, score: Callable[[Trajectory], float | None]) -> None:
        self.__name__ = name
        self.score = score

    def __call__(self, **columns: Any) -> list[float | None]:
        """The reward of each trajectory.

        Raises:
            ConfigurationError: There is no ``trajectory`` column, so the rollouts did not come from this package.
        """
        given: Any = columns.get("trajectory")
        if not isinstance(given, (list, tuple)) or not all(isinstance(t, Trajectory) for t in cast("list[Any]", given)):
            raise ConfigurationError(
                f"The reward function '{self.__name__}' reads trajectories, and there are none. Train with "
                "GRPOTrainer(rollout_func=openenv_trl.training.EnvironmentRollout([...]), ...), which brings them."
            )
        trajectories = cast("Sequence[Trajectory]", given)
        return [None if t.end_reason.is_failure else self.score(t) for t in trajectories]

    def __repr__(self) -> str:
        return f"RewardFunction({self.__name__!r})"
