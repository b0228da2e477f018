"""What one visitor did in an episode: for the log, for the code that plays it again, and for those who watch.

Pure: times are given. A log keeps the last thousand steps, and no more observations than fit into a few megabytes.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

MOST_STEPS = 1000
"""Steps that are kept."""

_MOST_BYTES = 4 * 1024 * 1024  # of logged observations; a picture in numbers has some hundred thousand


@dataclass(slots=True)
class Step:
    """One step as the log of the public package's page tells it."""

    timestamp: str
    action: dict[str, Any]
    observation: Any
    reward: Any
    done: bool
    step_count: int
    size: int = field(default=0, repr=False)

    def as_dict(self) -> dict[str, Any]:
        """Return the step as it travels."""
        return {
            "timestamp": self.timestamp,
            "action": self.action,
            "observation": self.observation,
            "reward": self.reward,
            "done": self.done,
            "step_count": self.step_count,
        }


class EpisodeRecord:
    """The running episode.

    Args:
        keeps_observations: Whether the log is kept, too.

    Attributes:
        reset_arguments: What the episode was begun with; None before the first.
        actions: The actions taken, up to `MOST_STEPS`.
        step_count: How many steps were taken.
        observation: The last observation, where the log is kept.
    """

    def __init__(self, *, keeps_observations: bool = False) -> None:
        self._keeps = keeps_observations
        self._steps: deque[Step] = deque(maxlen=MOST_STEPS)
        self._bytes = 0
        self.reset_arguments: dict[str, Any] | None = None
        self.actions: list[dict[str, Any]] = []
        self.step_count = 0
        self.observation: Any = None

    def begin(self, arguments: dict[str, Any]) -> None:
        """An episode begins; whatever was before is forgotten."""
        self.reset_arguments = arguments
        self.actions = []
        self.step_count = 0
        self._steps.clear()
        self._bytes = 0
        self.observation = None

    def observe(self, observation: Any) -> None:
        """The episode's first observation."""
        self.observation = observation if self._keeps else None

    def add(self, action: dict[str, Any], data: dict[str, Any], size: int, at: float) -> None:
        """A step was taken.

        Args:
            action: The action.
            data: What came of it, as it travels.
            size: The bytes that it has there.
            at: The time, in seconds since 1970.
        """
        self.step_count += 1
        if len(self.actions) < MOST_STEPS:
            self.actions.append(action)
        if not self._keeps:
            return
        self.observation = data["observation"]
        if len(self._steps) == MOST_STEPS:
            self._forget_first()
        when = datetime.fromtimestamp(at, timezone.utc).isoformat()
        step = Step(when, action, data["observation"], data["reward"], data["done"], self.step_count, size)
        self._steps.append(step)
        self._bytes += size
        while self._bytes > _MOST_BYTES and len(self._steps) > 1:
            self._forget_first()

    @property
    def is_whole(self) -> bool:
        """Whether all actions of the episode are kept."""
        return self.step_count == len(self.actions)

    def logged(self) -> list[dict[str, Any]]:
        """Return the log, the oldest step first."""
        return [step.as_dict() for step in self._steps]

    def _forget_first(self) -> None:
        self._bytes -= self._steps.popleft().size
