"""Rubrics as reward functions: the same objects that an environment scores its steps with, over whole trajectories."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from openenv_trl.errors import ConfigurationError
from openenv_trl.rewards.function import RewardFunction, Scored, Value
from openenv_trl.rollout.trajectory import Trajectory
from openenv_trl.rubrics import Rubric


@dataclass(frozen=True)
class StepView:
    """What a rubric sees of a step's observation.

    Attributes:
        text: What the model was shown.
        reward: The environment's reward of the step; None where it gave none.
        done: Whether the episode ended with this step.
        trajectory: The whole episode.
    """

    text: str
    reward: float | None
    done: bool
    trajectory: Trajectory


class RubricReward(RewardFunction):
    """Scores a trajectory by a rubric, step by step, and keeps the named scores of all its parts.

    The rubric is called as on a server, with each action (a dict) and its observation (a `StepView`); each trajectory
    has a copy of its own, so that rubrics which remember an episode work, also side by side.

    Args:
        rubric: The rubric; ``forward`` may be a coroutine function.
        combine: What the steps' scores become: their "sum", their "mean", or the "last" one.
        name: What TRL logs it by; the rubric's class name if None.

    Raises:
        ConfigurationError: It is no rubric.

    Example:
        >>> class Brief(Rubric):
        ...     def forward(self, action, observation):
        ...         return 1.0 if len(observation.trajectory.turns) <= 2 else 0.0
        >>> reward = RubricReward(Brief(), combine="last")
    """

    def __init__(
        self, rubric: Rubric, *, combine: Literal["sum", "mean", "last"] = "sum", name: str | None = None
    ) -> None:
        given: Any = rubric
        if not isinstance(given, Rubric):
            raise ConfigurationError(f"RubricReward needs a Rubric, not {type(given).__name__}: subclass Rubric.")
        if combine not in ("sum", "mean", "last"):
            raise ConfigurationError(f"combine={combine!r} must be 'sum', 'mean' or 'last'.")
        super().__init__(name or type(rubric).__name__, self._score)
        self.rubric = rubric
        self._combine = combine

    @property
    def is_async(self) -> bool:
        """Whether the rubric or a part of it is scored by a coroutine function."""
        return any(inspect.iscoroutinefunction(each.forward) for each in (self.rubric, *self.rubric.rubrics()))

    async def evaluate(self, trajectory: Trajectory) -> Scored:
        """Score the trajectory; the parts are the rubric's, under their dotted names."""
        rubric = copy.deepcopy(self.rubric)
        rubric.reset()
        scores: list[dict[str, Value]] = []

        async def ask(_: Trajectory) -> Value:
            for action, view in _steps(trajectory):
                score = rubric(action, view)
                own = await score if inspect.isawaitable(score) else score
                scores.append({"": own, **{name: each.last_score for name, each in rubric.named_rubrics()}})
            return self._together([each[""] for each in scores])

        value = self._checked(await self._ask_with(ask, trajectory), trajectory)
        names = scores[0].keys() - {""} if scores else ()
        return Scored(value, {name: self._together([each[name] for each in scores]) for name in sorted(names)})

    async def _score(self, trajectory: Trajectory) -> Value:
        return (await self.evaluate(trajectory)).value

    def _together(self, scores: list[Any]) -> Value:
        given = [score for score in scores if score is not None]
        if not given:
            return None
        if self._combine == "last":
            return given[-1]
        return sum(given) if self._combine == "sum" else sum(given) / len(given)


def _steps(trajectory: Trajectory) -> list[tuple[Mapping[str, Any], StepView]]:
    steps: list[tuple[Mapping[str, Any], StepView]] = []
    for turn in trajectory.turns:
        texts = [text for text in turn.observations if text not in turn.problems]
        for index, action in enumerate(turn.actions):
            last = index == len(turn.actions) - 1
            text = texts[index] if index < len(texts) else ""
            reward = turn.rewards[index] if index < len(turn.rewards) else None
            steps.append((action, StepView(text, reward, turn.done and last, trajectory)))
    return steps
