"""What is done about the last few episodes that everyone waits for: wait, or cut them off.

(A third answer, to ask a second session, is in `openenv_trl.rollout.strategies.hedge`.)
"""

from __future__ import annotations

import math
import statistics
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator


class WaitForStragglers(BaseModel):
    """Every episode is played to its end, as far as the limits go."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    type: Literal["wait"] = "wait"


class CutStragglers(BaseModel):
    """When most of the batch has ended, the rest gets a grace, and then ends with ``STRAGGLER``.

    The price is a bias against long episodes: the bias report of the run tells how large it is.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    type: Literal["cut"] = "cut"
    after_fraction: float = Field(default=0.9, gt=0, lt=1)
    """The part of the batch that must have ended, in whatever way, before the grace begins."""
    grace_s: float | None = Field(default=None, ge=0)
    """Seconds of grace. Give this or ``grace_medians``."""
    grace_medians: float | None = Field(default=None, ge=0)
    """Grace in medians of the seconds that the ended episodes took. 1.0 where neither is given: the rest then had
    about twice the time that is usual."""

    @model_validator(mode="after")
    def _one_grace(self) -> CutStragglers:
        if self.grace_s is not None and self.grace_medians is not None:
            raise ValueError("give grace_s or grace_medians, not both")
        return self

    def grace_of(self, durations_s: list[float]) -> float:
        """Seconds of grace, where the ended episodes took so long."""
        if self.grace_s is not None:
            return self.grace_s
        medians = 1.0 if self.grace_medians is None else self.grace_medians
        return medians * statistics.median(durations_s)


class StragglerWatch:
    """Knows from when on an episode is a straggler. Events and time in, deadlines out.

    The grace of an episode that was still waiting for its turn begins with its turn.

    Args:
        strategy: When the grace begins, and how long it is.
        episodes: How many episodes the batch has.
    """

    def __init__(self, strategy: CutStragglers, episodes: int) -> None:
        self._strategy = strategy
        self._needed = math.ceil(strategy.after_fraction * episodes)
        self._durations: list[float] = []
        self._began: dict[int, float] = {}
        self._grace_from: float | None = None
        self._grace_s = 0.0

    def started(self, member: int, now: float) -> float:
        """An episode's turn has come; returns the time when it is to be cut, infinity while that is not known."""
        self._began[member] = now
        return self._deadline(now)

    def ended(self, member: int, now: float) -> dict[int, float]:
        """An episode has ended; returns new deadlines of those that play on."""
        began = self._began.pop(member, None)
        if began is None:
            return {}
        self._durations.append(now - began)
        if self._grace_from is not None or len(self._durations) < self._needed:
            return {}
        self._grace_from, self._grace_s = now, self._strategy.grace_of(self._durations)
        return {other: self._deadline(since) for other, since in self._began.items()}

    def _deadline(self, began: float) -> float:
        return math.inf if self._grace_from is None else max(self._grace_from, began) + self._grace_s
