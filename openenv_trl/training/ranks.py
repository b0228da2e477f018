"""What the processes of a run tell one another, so that they decide alike.

A rank that raises by itself leaves the others waiting in the next collective call. So whatever ends a batch early on
one rank is a value first: all ranks gather it, and then all of them stop.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# (accelerate is typed in part only)
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from openenv_trl.errors import ConfigurationError, RolloutFailureError
from openenv_trl.training.batch_tally import BatchTally

T = TypeVar("T")


@dataclass(frozen=True)
class RankReport:
    """What one rank tells of its part of a batch.

    Attributes:
        problem: What ended it, as "Type: message"; None where it was played.
        tally: How its episodes ended.
        outcomes: The results that curricula learn from: by environment and level, in the order of the episodes.
        refused: Of each environment that refused all tasks of this rank's part, what it says.
        played: The environments that have ever played a task for this rank.
    """

    problem: str | None = None
    tally: BatchTally = field(default_factory=BatchTally)
    outcomes: dict[str, dict[str, list[float]]] = field(default_factory=dict[str, "dict[str, list[float]]"])
    refused: dict[str, str] = field(default_factory=dict[str, str])
    played: frozenset[str] = frozenset()


def gather_from_ranks(trainer: Any, value: T) -> list[T]:
    """The value of every rank, in their order. A collective call: every rank must make it.

    Args:
        trainer: Its accelerator says how many ranks there are.
        value: This rank's; anything that can be pickled.
    """
    if int(trainer.accelerator.num_processes) == 1:
        return [value]
    from accelerate.utils import gather_object

    return list(gather_object([value]))


def raise_together(reports: Sequence[RankReport], rank: int, own: BaseException | None) -> None:
    """Raise on every rank where one had to stop: its own error on that one, and what the other said on the rest.

    Args:
        reports: Of all ranks, in their order.
        rank: This one's number.
        own: The error of this rank; None where it has none.

    Raises:
        BaseException: The own error.
        RolloutFailureError: Another rank stopped; the message says which, and why.
    """
    if own is not None:
        raise own
    for other, report in enumerate(reports):
        if report.problem is not None and other != rank:
            raise RolloutFailureError(
                f"Rank {other} could not play its part of the batch, so all ranks stop. It says: {report.problem}"
            )


def raise_refused(reports: Sequence[RankReport]) -> None:
    """Raise, on every rank alike, where an environment refuses all that it is asked for, and plays for no rank.

    Raises:
        ConfigurationError: One does; the message has its words.
    """
    played = {name for report in reports for name in report.played}
    for report in reports:
        for name, text in report.refused.items():
            if name not in played:
                raise ConfigurationError(f"{name}: {text}" if name else text)


def merge_outcomes(reports: Sequence[RankReport]) -> dict[str, dict[str, list[float]]]:
    """The outcomes of all ranks, the first rank's first: the same on each."""
    merged: dict[str, dict[str, list[float]]] = {}
    for report in reports:
        for environment, levels in report.outcomes.items():
            for level, results in levels.items():
                merged.setdefault(environment, {}).setdefault(level, []).extend(results)
    return merged
