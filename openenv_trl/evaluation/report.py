"""What an evaluation found, as an object, as JSON and as a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from openenv_trl.errors import RolloutFailureError
from openenv_trl.evaluation.statistics import MeanInterval, mean_interval
from openenv_trl.rollout import Trajectory

if TYPE_CHECKING:
    from rich.table import Table


@dataclass(frozen=True)
class EvaluationReport:
    """The result of one evaluation.

    Attributes:
        name: What was evaluated.
        returns: Mean return with its 95% interval, over the episodes that have a reward.
        end_reasons: How many episodes ended in which way.
        failed: Episodes without a reward: their environment failed. They are not in the mean.
        mean_turns: Messages of the model an episode.
        invalid_actions: Actions that could not be used, in all.
        seconds: Wall-clock seconds.
    """

    name: str
    returns: MeanInterval
    end_reasons: Mapping[str, int]
    failed: int
    mean_turns: float
    invalid_actions: int
    seconds: float

    @classmethod
    def from_trajectories(
        cls, name: str, trajectories: Sequence[Trajectory], rewards: Sequence[float | None], seconds: float
    ) -> EvaluationReport:
        """Sum up trajectories.

        Args:
            name: What was evaluated.
            trajectories: One an episode.
            rewards: The reward of each, in the same order; None where it has none.
            seconds: How long it took.

        Raises:
            RolloutFailureError: No episode has a reward.
        """
        scored = [reward for reward in rewards if reward is not None]
        reasons = Counter(t.end_reason.value for t in trajectories)
        if not scored:
            errors = Counter(t.error for t in trajectories if t.error).most_common(1)
            raise RolloutFailureError(
                f"No episode of the evaluation '{name}' has a reward; they ended so: {dict(reasons)}. "
                f"The most common error: {errors[0][0] if errors else 'none; the environment gave no rewards'}."
            )
        return cls(
            name=name,
            returns=mean_interval(scored),
            end_reasons=dict(reasons.most_common()),
            failed=len(rewards) - len(scored),
            mean_turns=sum(len(t.turns) for t in trajectories) / len(trajectories),
            invalid_actions=sum(t.invalid_actions for t in trajectories),
            seconds=seconds,
        )

    def as_json(self) -> dict[str, Any]:
        """The report as plain values, with units in the names."""
        return {
            "name": self.name,
            "mean_return": self.returns.mean,
            "interval_95": [self.returns.low, self.returns.high],
            "episodes": self.returns.count,
            "failed_episodes": self.failed,
            "end_reasons": dict(self.end_reasons),
            "mean_turns": self.mean_turns,
            "invalid_actions": self.invalid_actions,
            "seconds": self.seconds,
        }


def comparison_table(
    title: str, reports: Sequence[EvaluationReport], references: Mapping[str, float] | None = None
) -> Table:
    """A table of reports beside known returns, for a terminal.

    Args:
        title: The table's title.
        reports: A row each.
        references: Known mean returns by name: a row each, without an interval.
    """
    from rich import box
    from rich.table import Table

    some_failed = any(report.failed for report in reports)
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.add_column("policy", overflow="fold")
    headings = ["mean", "95% interval", "episodes", "turns", "invalid", *(["failed"] if some_failed else [])]
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    for report in reports:
        returns = report.returns
        table.add_row(
            report.name,
            f"{returns.mean:+.4f}",
            f"{returns.low:+.4f} … {returns.high:+.4f}",
            f"{returns.count:,}",
            f"{report.mean_turns:.2f}",
            f"{report.invalid_actions:,}",
            *([f"{report.failed:,}"] if some_failed else []),
        )
    if references:
        table.add_section()
        for name, value in references.items():
            table.add_row(
                f"[dim]{name}[/dim]", f"[dim]{value:+.4f}[/dim]", "[dim]exact[/dim]", *[""] * (len(headings) - 2)
            )
    return table
