"""How the episodes of a generation batch ended, counted: of one rank, or of all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from openenv_trl.rollout import EndReason, Trajectory

_EXAMPLE_LENGTH = 300
"""Characters of an error that are shown: the first line of most."""


@dataclass(frozen=True)
class BatchTally:
    """How episodes ended.

    Attributes:
        episodes: How many were played for the batch.
        failures: How many failed, by their end reason.
        examples: One error of each of these reasons, in words.
    """

    episodes: int = 0
    failures: dict[str, int] = field(default_factory=dict[str, int])
    examples: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def failed(self) -> int:
        """Episodes that failed after all tries."""
        return sum(self.failures.values())

    @property
    def sound(self) -> int:
        """Episodes that can be learned from."""
        return self.episodes - self.failed

    @classmethod
    def of(cls, trajectories: Iterable[Trajectory]) -> BatchTally:
        """The tally of these. What was played beyond a group's need is neither sound nor failed."""
        counted = [t for t in trajectories if t.end_reason is not EndReason.SURPLUS]
        failed = [t for t in counted if t.end_reason.is_failure]
        examples: dict[str, str] = {}
        for trajectory in failed:
            examples.setdefault(trajectory.end_reason.value, (trajectory.error or "")[:_EXAMPLE_LENGTH])
        return cls(len(counted), dict(Counter(t.end_reason.value for t in failed)), examples)

    @classmethod
    def merged(cls, tallies: Sequence[BatchTally]) -> BatchTally:
        """The tally of all of them; the same whatever rank merges them."""
        failures: Counter[str] = Counter()
        examples: dict[str, str] = {}
        for tally in tallies:
            failures.update(tally.failures)
            examples = {**tally.examples, **examples}
        return cls(sum(tally.episodes for tally in tallies), dict(failures), examples)

    def reasons(self) -> str:
        """The failures in words, the most frequent first: ``6 step_timeout (step: ...), 2 session_lost (...)``."""
        ordered = sorted(self.failures.items(), key=lambda item: (-item[1], item[0]))
        return ", ".join(f"{count} {reason} ({self.examples.get(reason, '')})" for reason, count in ordered)
