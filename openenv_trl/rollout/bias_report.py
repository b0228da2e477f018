"""What a run lost, and whether that leans to one side: which tasks, groups and lengths were dropped.

Dropped is every episode that nothing is learned from: it failed, was cut as a straggler, was surplus, or was replaced
by a fresh one. Of an episode that was cut only the length so far is known, which is less than it would have been: where
the dropped look longer than the kept, they are longer still.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from openenv_trl.rollout.task import Task
from openenv_trl.rollout.trajectory import Trajectory


@dataclass(frozen=True)
class Lengths:
    """How long some episodes were, as far as known: means.

    Attributes:
        turns: Messages of the model.
        tokens: Tokens that the model wrote.
        seconds: Seconds from the episode's turn to its end.
    """

    turns: float
    tokens: float
    seconds: float

    @classmethod
    def of(cls, trajectories: Sequence[Trajectory]) -> Lengths | None:
        """The means of some trajectories; None where there are none."""
        if not trajectories:
            return None
        return cls(
            statistics.fmean(len(each.turns) for each in trajectories),
            statistics.fmean(sum(each.mask) for each in trajectories),
            statistics.fmean(each.ended_s - each.started_s for each in trajectories),
        )


@dataclass(frozen=True)
class Share:
    """How many of some episodes were dropped."""

    dropped: int
    played: int

    @property
    def fraction(self) -> float:
        """From 0 to 1."""
        return self.dropped / self.played


@dataclass(frozen=True)
class BiasReport:
    """What a run kept and dropped. ``str()`` gives it as text.

    Attributes:
        kept: Trajectories that are learned from.
        dropped: All others that were played, in no order.
        left_out: Those of the dropped that were not returned: surplus, or replaced by a fresh episode.
        reasons: How the dropped ended, by the end reason's name; the commonest first.
        kept_lengths: Mean lengths of the kept; None where there are none.
        dropped_lengths: Mean lengths of the dropped, as far as they were played; of those that came to no turn nothing
            is known, and they are not counted.
        by_group: For each group that lost episodes, its name and share; the worst first.
        by_task: The same by task: by what tells tasks apart for the user, see `bias_report`.
        by_environment: The share of each environment, where a run has several.
        empty_groups: Groups of which nothing is left.
    """

    kept: int
    dropped: tuple[Trajectory, ...]
    left_out: tuple[Trajectory, ...]
    reasons: dict[str, int]
    kept_lengths: Lengths | None
    dropped_lengths: Lengths | None
    by_group: dict[str, Share]
    by_task: dict[str, Share]
    by_environment: dict[str, Share]
    empty_groups: tuple[str, ...]

    @property
    def played(self) -> int:
        """All episodes of the run, extra and replaced ones included."""
        return self.kept + len(self.dropped)

    def metrics(self) -> dict[str, float]:
        """The report as numbers to log, by names that begin with ``dropped/``.

        The lengths are ratios, dropped to kept: 1.0 is no bias, 2.0 says that the dropped were twice as long.
        """
        numbers = {
            "dropped/fraction": len(self.dropped) / self.played if self.played else 0.0,
            "dropped/groups_hit": float(len(self.by_group)),
            "dropped/groups_lost": float(len(self.empty_groups)),
        }
        kept, dropped = self.kept_lengths, self.dropped_lengths
        if kept is not None and dropped is not None:
            numbers["dropped/turns_ratio"] = _ratio(dropped.turns, kept.turns)
            numbers["dropped/tokens_ratio"] = _ratio(dropped.tokens, kept.tokens)
            numbers["dropped/seconds_ratio"] = _ratio(dropped.seconds, kept.seconds)
        for name, count in self.reasons.items():
            numbers[f"dropped/{name}"] = float(count)
        if len(self.by_environment) > 1:
            numbers |= {f"dropped/fraction/{name}": share.fraction for name, share in self.by_environment.items()}
        return numbers

    def __str__(self) -> str:
        if not self.dropped:
            return f"All {self.kept} episodes are kept."
        reasons = ", ".join(f"{count} {name}" for name, count in self.reasons.items())
        lines = [f"{len(self.dropped)} of {self.played} episodes were dropped: {reasons}."]
        if self.empty_groups:
            lines.append(f"Groups of which nothing is left: {_few(self.empty_groups)}.")
        lines += _shares("group", self.by_group) + _shares("task", self.by_task)
        if len(self.by_environment) > 1:
            lines += _shares("environment", self.by_environment)
        for name, lengths in (("kept", self.kept_lengths), ("dropped, as far as played", self.dropped_lengths)):
            if lengths is not None:
                turns, tokens, seconds = lengths.turns, lengths.tokens, lengths.seconds
                lines.append(f"Mean of the {name}: {turns:.1f} turns, {tokens:.0f} tokens, {seconds:.1f} s.")
        return "\n".join(lines)


def bias_report(
    returned: Sequence[Trajectory],
    left_out: Sequence[Trajectory] = (),
    *,
    task_key: Callable[[Task], str] | None = None,
) -> BiasReport:
    """Compare what a run keeps with what it drops.

    Args:
        returned: The trajectories of the tasks; the failed among them count as dropped.
        left_out: Those that were played beside them: surplus, or replaced.
        task_key: What tells tasks apart for you, such as a level's name. By default the task's own ``task_seed`` or
            ``seed``.
    """
    kept = [each for each in returned if not each.end_reason.is_failure]
    dropped = [each for each in [*returned, *left_out] if each.end_reason.is_failure]
    groups = _by(kept, dropped, lambda each: None if each.task.group is None else str(each.task.group))
    key = task_key or _seed_of
    surviving = {str(each.task.group) for each in kept}
    return BiasReport(
        kept=len(kept),
        dropped=tuple(dropped),
        left_out=tuple(left_out),
        reasons=dict(Counter(each.end_reason.value for each in dropped).most_common()),
        kept_lengths=Lengths.of(kept),
        dropped_lengths=Lengths.of([each for each in dropped if each.turns]),
        by_group=_hit(groups),
        by_task=_hit(_by(kept, dropped, lambda each: key(each.task))),
        by_environment=_by(kept, dropped, lambda each: each.environment),
        empty_groups=tuple(name for name in groups if name not in surviving),
    )


def _seed_of(task: Task) -> str:
    seed = task.reset.get("task_seed", task.reset.get("seed"))
    return f"task {task.index}" if seed is None else f"seed {seed}"


def _by(
    kept: Iterable[Trajectory], dropped: Iterable[Trajectory], key: Callable[[Trajectory], str | None]
) -> dict[str, Share]:
    lost = Counter(key(each) for each in dropped)
    played = lost + Counter(key(each) for each in kept)
    return {name: Share(lost[name], count) for name, count in played.items() if name is not None}


def _hit(shares: dict[str, Share]) -> dict[str, Share]:
    hit = [(name, share) for name, share in shares.items() if share.dropped]
    return dict(sorted(hit, key=lambda item: (-item[1].fraction, -item[1].dropped)))


def _shares(what: str, shares: dict[str, Share]) -> list[str]:
    hit = _hit(shares)
    if not hit:
        return []
    told = [f"{name} {share.dropped}/{share.played}" for name, share in list(hit.items())[:5]]
    more = f" and {len(hit) - 5} more" if len(hit) > 5 else ""
    return [f"Dropped by {what}: {', '.join(told)}{more}."]


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _ratio(dropped: float, kept: float) -> float:
    return dropped / kept if kept else 1.0
