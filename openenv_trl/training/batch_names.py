"""Names for generation batches: the same at each run of the same step, different from one another."""

from __future__ import annotations


class BatchNames:
    """Names batches after the trainer's step.

    So a run that is taken up again from a checkpoint goes on with new luck, as it would have without the interruption,
    and an evaluation plays the same tasks each time.
    """

    def __init__(self) -> None:
        self._before = ("", -1)
        self._count = 0

    def next(self, training: bool, step: int) -> str:
        """The next batch's name.

        Args:
            training: Whether it is for training, and not an evaluation's.
            step: The trainer's step.
        """
        place = ("train" if training else "eval", step)
        self._count = self._count + 1 if place == self._before else 0
        self._before = place
        return f"train_{step:06d}_{self._count}" if training else f"eval_{self._count:06d}"
