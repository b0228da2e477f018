"""How far an episode has come whose loop belongs to someone else, such as a trainer.

Pure: results and failures go in, the text that the model is shown and the reward come out. Nothing here knows a
session, a task or a clock.

An episode that is over stays over: whatever the model calls then is answered with one fixed text, and never reaches
the environment. An episode that failed has no reward, and its failure is told to nobody who is trained on it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from openenv_trl.rollout.answer import Answer
from openenv_trl.rollout.failures import EpisodeFailed
from openenv_trl.rollout.trajectory import EndReason

OVER_TEXT = "The episode is over."
"""What a call is answered with that comes after the end."""


@dataclass
class EpisodeProgress:
    """One episode, from its reset to its reward.

    Attributes:
        max_invalid_actions: Unusable calls that are answered with what is wrong; one more ends the episode.
        arguments: What the environment was reset with.
        first_observation: The text after the reset.
        actions: What went out as steps, in order.
        observations: What came back, in order.
        rewards: Of each step; None where there was none.
        invalid_actions: Unusable calls so far.
        end_reason: Why it is over; None while it is not.
        error: What failed, for people; None if nothing did.
        attempts: Tries of the reset, each in a fresh session.
        actions_began: Whether an action was sent to the environment.
        environment_s: Seconds that the environment took, all calls together.
    """

    max_invalid_actions: int = 2
    arguments: dict[str, Any] = field(default_factory=dict[str, Any])
    first_observation: str = ""
    actions: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    observations: list[str] = field(default_factory=list[str])
    rewards: list[float | None] = field(default_factory=list["float | None"])
    invalid_actions: int = 0
    end_reason: EndReason | None = None
    error: str | None = None
    attempts: int = 0
    actions_began: bool = False
    environment_s: float = 0.0

    @property
    def is_over(self) -> bool:
        """Whether no further call may reach the environment."""
        return self.end_reason is not None

    @property
    def has_failed(self) -> bool:
        """Whether something broke that the model is not to blame for."""
        return self.end_reason is not None and self.end_reason.is_failure

    @property
    def was_refused(self) -> bool:
        """Whether the environment was asked for what it cannot do: its session is as good as before."""
        return self.end_reason is EndReason.CONFIGURATION_ERROR

    def begun(self, answer: Answer) -> str:
        """The environment was reset; returns the first observation."""
        self.first_observation = answer.text
        return answer.text

    def stepped(self, action: dict[str, Any], answer: Answer) -> str:
        """The environment took an action; returns what the model is shown."""
        if self.has_failed:
            return OVER_TEXT
        self.actions.append(action)
        self.observations.append(answer.text)
        self.rewards.append(answer.reward)
        if answer.done:
            self.end_reason = EndReason.TRUNCATED if answer.truncated else EndReason.DONE
        return answer.text

    def refused(self, problem: str) -> str:
        """The model's call was of no use; returns what it is told."""
        self.invalid_actions += 1
        if self.end_reason is None and self.invalid_actions > self.max_invalid_actions:
            self.end_reason = EndReason.INVALID_ACTION
        return problem

    def failed(self, failure: EpisodeFailed) -> str:
        """Something broke; returns what the model is shown, which is not that."""
        self.end_reason, self.error = failure.reason, str(failure)
        return OVER_TEXT

    def left(self) -> None:
        """The model calls no more."""
        if self.end_reason is None:
            self.end_reason = EndReason.NO_ACTION

    def reward(self, unfinished: float = 0.0) -> float | None:
        """The sum of the steps' rewards; None where there is nothing to learn from.

        Args:
            unfinished: Added where the model left the episode without an end.
        """
        if self.has_failed:
            return None
        given = [value for value in self.rewards if value is not None]
        is_left = self.end_reason is None or self.end_reason.is_unfinished
        if not given:
            return unfinished if is_left and unfinished else None
        return sum(given) + (unfinished if is_left else 0.0)
