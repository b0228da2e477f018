"""Who plays in a run, and whose trajectory each task gets. Events in, decisions out; no task, no clock.

Each episode of a run is a *member*, by number: first one for each task, in the tasks' order, then the extra ones of
over-sampled groups, then those that replace failed ones. Invariants:

- each task gets exactly one member in the end, and no member serves two tasks;
- a group has as many sound members chosen as there are, up to its size; rewards have no say;
- a group begins no more than its extra and its replacing episodes, and none once it is full.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from openenv_trl.rollout.seeds import derive_seed
from openenv_trl.rollout.strategies.over_sampling import NoOverSampling, OverSampleGroups
from openenv_trl.rollout.strategies.refill import NoRefill, RefillGroups
from openenv_trl.rollout.task import Task
from openenv_trl.rollout.trajectory import EndReason


@dataclass(frozen=True)
class Changes:
    """What follows of a member's end.

    Attributes:
        start: Members to be played from now on.
        stop: Members that are not needed any more.
        settled: Members of which it is now certain that their trajectories are among those returned.
    """

    start: tuple[int, ...] = ()
    stop: tuple[int, ...] = ()
    settled: tuple[int, ...] = ()


@dataclass
class _Group:
    places: list[int] = field(default_factory=list[int])
    playing: set[int] = field(default_factory=set[int])
    sound: list[int] = field(default_factory=list[int])
    chosen: list[int] = field(default_factory=list[int])
    failed: list[int] = field(default_factory=list[int])
    refills: int = 0
    is_over: bool = False


class Roster:
    """The members of a run.

    Args:
        tasks: What is to be played; one trajectory comes back for each.
        over_sampling: Whether groups play more.
        refill: Whether failed members are replaced.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        over_sampling: NoOverSampling | OverSampleGroups,
        refill: NoRefill | RefillGroups,
    ) -> None:
        self.tasks = list(tasks)
        """The task of each member so far."""
        self._count = len(tasks)
        self._refill = refill
        self._finish_all = isinstance(over_sampling, OverSampleGroups) and over_sampling.surplus == "finish"
        self._groups: list[_Group] = []
        self._group_of: list[_Group] = []
        named: dict[tuple[type, str | int], _Group] = {}
        for place, task in enumerate(tasks):
            group = _Group() if task.group is None else named.setdefault((type(task.group), task.group), _Group())
            if not group.places:
                self._groups.append(group)
            group.places.append(place)
            group.playing.add(place)
            self._group_of.append(group)
        if isinstance(over_sampling, OverSampleGroups):
            for group in named.values():
                for number in range(over_sampling.extra):
                    self._add(group, ("extra", number))
        self.first = len(self.tasks)
        """How many members are played from the beginning."""

    def ended(self, member: int, reason: EndReason) -> Changes:
        """A member's episode is over.

        Args:
            member: Which.
            reason: How it ended; ``SURPLUS`` where it was stopped for this roster's sake.
        """
        group = self._group_of[member]
        group.playing.discard(member)
        start: tuple[int, ...] = ()
        settled: list[int] = []
        if not reason.is_failure:
            group.sound.append(member)
            if not self._finish_all and len(group.chosen) < len(group.places):
                group.chosen.append(member)
                settled.append(member)
        elif not group.is_over and reason is not EndReason.SURPLUS:
            group.failed.append(member)
            start = self._replacement(group, reason, member)
        full = len(group.chosen) == len(group.places)
        stop = tuple(sorted(group.playing)) if full and not group.is_over else ()
        if not group.is_over and (full or not group.playing):
            group.is_over = True
            settled += self._close(group, settled)
        return Changes(start, stop, tuple(settled))

    def is_surplus(self, member: int) -> bool:
        """Whether the member's group is full without it: known once the group has its members."""
        group = self._group_of[member]
        return group.is_over and member in group.sound and member not in group.chosen

    def is_full(self, member: int) -> bool:
        """Whether the member's group has all the sound members that it needs."""
        group = self._group_of[member]
        return len(group.chosen) == len(group.places)

    def chosen(self) -> list[int]:
        """The member of each task, in the tasks' order. All episodes must be over."""
        members: list[int] = [-1] * self._count
        for group in self._groups:
            for place, member in _placed(group).items():
                members[place] = member
        return members

    def _close(self, group: _Group, told: list[int]) -> list[int]:
        """The group's members are known; returns those that are settled by that."""
        before = {*group.chosen, *told}
        if self._finish_all:
            group.chosen = sorted(group.sound)[: len(group.places)]
        return [member for member in _placed(group).values() if member not in before]

    def _replacement(self, group: _Group, reason: EndReason, member: int) -> tuple[int, ...]:
        refill = self._refill
        if not isinstance(refill, RefillGroups) or reason not in refill.reasons:
            return ()
        if group.refills >= refill.max_episodes or len(group.sound) + len(group.playing) >= len(group.places):
            return ()
        number, group.refills = group.refills, group.refills + 1
        return (self._add(group, ("refill", number), like=member),)

    def _add(self, group: _Group, name: tuple[str, int], like: int | None = None) -> int:
        member = len(self.tasks)
        places = [self.tasks[place] for place in group.places]
        self.tasks.append(fresh_task(places, name, None if like is None else self.tasks[like]))
        self._group_of.append(group)
        group.playing.add(member)
        return member


def _placed(group: _Group) -> dict[int, int]:
    """The member at each place: its own where that is chosen, then the other chosen ones, then the failed ones."""
    others = [member for member in group.chosen if member not in group.places]
    vacant = [place for place in group.places if place not in group.chosen]
    return {place: place for place in group.places} | dict(zip(vacant, others, strict=False))


def fresh_task(group: Sequence[Task], name: tuple[str, int], like: Task | None = None) -> Task:
    """The task of one more episode of a group.

    Where the group's episodes differ in their ``seed`` (each has luck of its own) it gets one that is unlike them,
    derived from theirs; otherwise it is the same task again.

    Args:
        group: The tasks of the group.
        name: Tells several such episodes of a group apart.
        like: The task that is played again; the first one of the group if None.
    """
    task = like or group[0]
    seeds = [each.reset.get("seed") for each in group]
    if len({repr(seed) for seed in seeds}) < 2:
        return task
    return replace(task, reset={**task.reset, "seed": derive_seed(name, *seeds)})
