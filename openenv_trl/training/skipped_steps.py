"""What is done with a batch of which much failed: train on what is sound, skip the step, or stop.

`SkippedSteps` decides from counts alone, so ranks that hold the same counts decide alike. The `SkippedStepCallback`
beside makes a skipped step change nothing at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from openenv_trl.errors import ConfigurationError
from openenv_trl.training.batch_tally import BatchTally


class Verdict(str, Enum):
    """What to do with a batch."""

    TRAIN = "train"
    """Learn from the episodes that are sound; the others are masked out."""
    SKIP = "skip"
    """Learn from none of it, and go on with the next batch."""
    STOP = "stop"
    """End the training: something is broken for longer than a while."""


@dataclass(frozen=True)
class Decision:
    """A verdict, and what to say of it; "" where there is nothing to say."""

    verdict: Verdict
    message: str = ""


class SkippedSteps:
    """Decides about batches, and counts how many in a row were skipped.

    Args:
        max_failed_fraction: Skip a batch of which more than this part failed, from 0 to 1. A batch without any sound
            episode is skipped in any case.
        max_skipped_steps: Batches that may be skipped in a row; one more stops the training.

    Raises:
        ConfigurationError: A number that means nothing.
    """

    def __init__(self, *, max_failed_fraction: float, max_skipped_steps: int) -> None:
        if not 0.0 <= max_failed_fraction <= 1.0:
            raise ConfigurationError(f"max_failed_fraction={max_failed_fraction} must lie between 0 and 1.")
        if max_skipped_steps < 0:
            raise ConfigurationError(f"max_skipped_steps={max_skipped_steps} must be 0 or more.")
        self._max_failed_fraction = max_failed_fraction
        self._max_in_a_row = max_skipped_steps
        self.in_a_row = 0
        """Batches skipped since the last one that was trained on."""

    def decide(self, tally: BatchTally) -> Decision:
        """What to do with the batch of this tally, of all ranks together."""
        if not tally.failed:
            self.in_a_row = 0
            return Decision(Verdict.TRAIN)
        lost = f"{tally.failed} of {tally.episodes} episodes failed after all tries: {tally.reasons()}."
        if tally.sound and tally.failed <= self._max_failed_fraction * tally.episodes:
            self.in_a_row = 0
            return Decision(Verdict.TRAIN, f"{lost} The step trains on the other {tally.sound}.")
        why = "Nothing is left to train on"
        if tally.sound:
            why = f"That is more than max_failed_fraction={self._max_failed_fraction:g}"
        self.in_a_row += 1
        if self.in_a_row > self._max_in_a_row:
            steps = "step" if self.in_a_row == 1 else f"{self.in_a_row} steps in a row"
            return Decision(
                Verdict.STOP,
                f"{lost} {why}, for {steps}: training stops (max_skipped_steps={self._max_in_a_row}).",
            )
        return Decision(
            Verdict.SKIP,
            f"{lost} {why}: the step is skipped, number {self.in_a_row} in a row of at most {self._max_in_a_row}.",
        )
