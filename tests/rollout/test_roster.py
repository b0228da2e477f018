"""Promises of the roster: one trajectory a task, groups as full as can be, rewards without a say, bounds kept."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openenv_trl.rollout import EndReason, NoOverSampling, NoRefill, OverSampleGroups, RefillGroups, Task
from openenv_trl.rollout.roster import Roster

PROMPT = [{"role": "user", "content": "Play."}]


def tasks_of(sizes: list[int], *, seeds: str = "same") -> list[Task]:
    """Groups of such sizes; a size of 0 is a task without a group."""
    tasks: list[Task] = []
    for group, size in enumerate(sizes):
        for _ in range(max(size, 1)):
            seed = group if seeds == "same" else 1000 + len(tasks)
            tasks.append(Task(PROMPT, {"seed": seed, "task_seed": group}, group=None if size == 0 else group))
    return tasks


ENDS = (EndReason.DONE, EndReason.DONE, EndReason.MAX_TURNS, EndReason.ENVIRONMENT_ERROR, EndReason.STRAGGLER)


def played(roster: Roster, generator: random.Random) -> tuple[dict[int, EndReason], list[int]]:
    """Play a whole run in a random order, as the engine would: how each member ended, and what was settled."""
    playing = list(range(roster.first))
    ends: dict[int, EndReason] = {}
    settled: list[int] = []
    stopped: set[int] = set()
    while playing:
        member = playing.pop(generator.randrange(len(playing)))
        reason = EndReason.SURPLUS if member in stopped else generator.choice(ENDS)
        changes = roster.ended(member, reason)
        ends[member] = reason
        playing += changes.start
        stopped |= set(changes.stop)
        settled += changes.settled
        assert set(changes.stop) <= set(playing)
    return ends, settled


@settings(deadline=None)
@given(
    sizes=st.lists(st.integers(0, 5), min_size=1, max_size=4),
    extra=st.integers(0, 3),
    finish=st.booleans(),
    refills=st.integers(0, 3),
    seed=st.integers(0, 10_000),
)
def test_each_task_gets_one_member_of_its_group_and_sound_ones_come_first(
    sizes: list[int], extra: int, finish: bool, refills: int, seed: int
) -> None:
    tasks = tasks_of(sizes)
    over = OverSampleGroups(extra=extra, surplus="finish" if finish else "cut") if extra else NoOverSampling()
    roster = Roster(tasks, over, RefillGroups(max_episodes=refills) if refills else NoRefill())
    ends, settled = played(roster, random.Random(seed))
    chosen = roster.chosen()

    assert len(chosen) == len(set(chosen)) == len(tasks)
    assert sorted(settled) == sorted(chosen)  # each told once, and no other
    for place, member in enumerate(chosen):
        mine, its = tasks[place], roster.tasks[member]
        assert its.group == mine.group
        assert mine.group is not None or its.reset["task_seed"] == mine.reset["task_seed"]
    groups = {task.group for task in tasks if task.group is not None}
    for group in groups:
        members = [m for m in range(len(roster.tasks)) if roster.tasks[m].group == group]
        size = sum(task.group == group for task in tasks)
        sound = [m for m in members if not ends[m].is_failure]
        taken = [m for m in members if m in chosen]
        assert sum(not ends[m].is_failure for m in taken) == min(len(sound), size)
        assert len(members) <= size + extra + refills
        assert all(roster.is_surplus(m) for m in sound if m not in taken)
        assert not any(roster.is_surplus(m) for m in taken)


def test_the_first_sound_ones_in_time_are_kept_and_the_others_stopped() -> None:
    roster = Roster(tasks_of([2]), OverSampleGroups(extra=2), NoRefill())
    assert roster.first == 4
    assert roster.ended(3, EndReason.DONE).settled == (3,)
    assert roster.ended(1, EndReason.ENVIRONMENT_ERROR).stop == ()
    changes = roster.ended(2, EndReason.NO_ACTION)  # the model's doing, and so worth learning from
    assert (changes.stop, changes.settled) == ((0,), (2,))
    roster.ended(0, EndReason.SURPLUS)
    assert roster.chosen() == [3, 2]


def test_where_all_finish_the_places_decide_and_not_the_time() -> None:
    roster = Roster(tasks_of([2]), OverSampleGroups(extra=1, surplus="finish"), NoRefill())
    for member in (2, 1):
        assert roster.ended(member, EndReason.DONE).stop == ()
    assert set(roster.ended(0, EndReason.DONE).settled) == {0, 1}
    assert roster.chosen() == [0, 1]
    assert roster.is_surplus(2)


def test_a_group_is_refilled_alone_and_only_as_often_as_allowed() -> None:
    roster = Roster(tasks_of([2, 2]), NoOverSampling(), RefillGroups(max_episodes=1))
    assert roster.ended(0, EndReason.ENVIRONMENT_ERROR).start == (4,)
    assert roster.tasks[4].group == 0
    assert roster.ended(4, EndReason.ENVIRONMENT_ERROR).start == ()
    assert roster.ended(3, EndReason.STEP_TIMEOUT).start == (5,)
    for member in (1, 2, 5):
        assert roster.ended(member, EndReason.DONE).start == ()
    assert roster.chosen() == [0, 1, 2, 5]


@pytest.mark.parametrize("reason", [EndReason.STRAGGLER, EndReason.BATCH_TIMEOUT, EndReason.CONNECT_FAILED])
def test_what_no_fresh_episode_can_help_is_not_refilled(reason: EndReason) -> None:
    assert Roster(tasks_of([2]), NoOverSampling(), RefillGroups()).ended(0, reason).start == ()


def test_an_extra_episode_stands_in_before_a_fresh_one_is_begun() -> None:
    roster = Roster(tasks_of([2]), OverSampleGroups(extra=1), RefillGroups())
    assert roster.ended(0, EndReason.ENVIRONMENT_ERROR).start == ()  # two are still playing
    assert roster.ended(1, EndReason.ENVIRONMENT_ERROR).start == (3,)


def test_a_further_episode_has_luck_of_its_own_where_the_others_have() -> None:
    own = Roster(tasks_of([3], seeds="own"), OverSampleGroups(extra=2), NoRefill())
    seeds = [task.reset["seed"] for task in own.tasks]
    assert len(set(seeds)) == 5
    assert {task.reset["task_seed"] for task in own.tasks} == {0}
    again: Any = Roster(tasks_of([3], seeds="own"), OverSampleGroups(extra=2), NoRefill())
    assert [task.reset["seed"] for task in again.tasks] == seeds  # the same in every process
    same = Roster(tasks_of([3]), OverSampleGroups(extra=2), NoRefill())
    assert {task.reset["seed"] for task in same.tasks} == {0}


def test_tasks_without_a_group_are_not_over_sampled() -> None:
    assert Roster(tasks_of([0, 0]), OverSampleGroups(extra=4), NoRefill()).first == 2


def test_groups_whose_names_are_equal_but_unlike_are_two() -> None:
    tasks = [Task([{"role": "user", "content": "x"}], group=group) for group in (True, 1, True, 1)]
    roster = Roster(tasks, OverSampleGroups(extra=1), NoRefill())
    assert roster.first == 6
