"""Rubrics that look at a whole episode: silent until it is over, then one score for all of it.

Source: section "Rubrics" of the OpenEnv package, version 0.10.0, for names and behaviour.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from openenv_trl.plain_numbers import plain_number
from openenv_trl.rubrics.rubric import Rubric, Score


class TrajectoryRubric(Rubric):
    """Keeps an episode's steps and scores them at its end. Subclasses say how.

    Args:
        intermediate_reward: The score of every step before the last.
    """

    def __init__(self, intermediate_reward: float = 0.0) -> None:
        super().__init__()
        self.intermediate_reward = intermediate_reward
        self._trajectory: list[tuple[Any, Any]] = []

    @abstractmethod
    def score_trajectory(self, trajectory: list[tuple[Any, Any]]) -> Score:
        """Return the score of a finished episode, given as pairs of action and observation."""

    @abstractmethod
    def compute_step_rewards(self) -> list[float]:
        """Return a reward for each step of the episode: how its score is shared out."""

    @property
    def trajectory(self) -> list[tuple[Any, Any]]:
        """The steps of the episode so far."""
        return list(self._trajectory)

    def forward(self, action: Any, observation: Any) -> Score:
        """Return the intermediate reward; the whole episode's score where the observation is its last."""
        self._trajectory.append((action, observation))
        return self.score_trajectory(self.trajectory) if observation.done else self.intermediate_reward

    def reset(self) -> None:
        """Forget the episode."""
        super().reset()
        self._trajectory = []

    def state_dict(self) -> dict[str, Any]:
        """Return the settings."""
        return {"intermediate_reward": self.intermediate_reward}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take settings from `state_dict`."""
        self.intermediate_reward = state.get("intermediate_reward", self.intermediate_reward)


class ExponentialDiscountingTrajectoryRubric(TrajectoryRubric):
    """Shares an episode's score out so that step ``t`` of ``T`` gets ``gamma ** (T - 1 - t)`` of it.

    Args:
        gamma: The discount, from 0 (the last step gets all) to 1 (each step gets all).
        intermediate_reward: The score of every step before the last.

    Raises:
        ValueError: ``gamma`` is not between 0 and 1.
    """

    def __init__(self, gamma: float = 0.99, intermediate_reward: float = 0.0) -> None:
        super().__init__(intermediate_reward)
        if not 0.0 <= gamma <= 1.0:
            raise ValueError(f"gamma must be between 0 and 1; it is {gamma}")
        self.gamma = gamma

    def compute_step_rewards(self) -> list[float]:
        """Return each step's share of the episode's score.

        Raises:
            ValueError: `score_trajectory` is asynchronous: await the rubric, then use its ``last_score``.
        """
        steps = self.trajectory
        if not steps:
            return []
        score = plain_number(self.score_trajectory(steps))
        if score is None:
            raise ValueError("the shares of an asynchronous score cannot be computed here: await the rubric instead")
        return [self.gamma ** (len(steps) - 1 - t) * score for t in range(len(steps))]

    def state_dict(self) -> dict[str, Any]:
        """Return the settings."""
        return {**super().state_dict(), "gamma": self.gamma}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take settings from `state_dict`."""
        super().load_state_dict(state)
        self.gamma = state.get("gamma", self.gamma)
