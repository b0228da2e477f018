"""Promises of a part of an observed run: each episode has one place in the whole, also one that was added later."""

from __future__ import annotations

import itertools

from openenv_trl.rollout import EndReason, Task, Trajectory, Turn
from openenv_trl.rollout.observer import Phase
from openenv_trl.rollout.watch import BatchProgress
from openenv_trl.training.observed_part import ObservedPart


def test_episodes_of_two_parts_never_share_a_place() -> None:
    whole, further = BatchProgress(), itertools.count(4)
    first, second = ObservedPart(whole, [0, 2], further), ObservedPart(whole, [1, 3], further)
    whole.run_started(4, 0.0)
    for part in (first, second):
        for index in range(4):  # 2 and 3 were over-sampled, or took the place of failed ones
            part.episode_started(index, 1.0)
            part.phase_changed(index, Phase.STEPPING, 2.0)
            part.turn_ended(index, Turn(), 3.0)
    assert whole.view(4.0).phases[Phase.STEPPING] == 8
    task = Task([{"role": "user", "content": "Play."}])
    for index in (3, 3, 1):
        second.episode_finished(index, Trajectory(task, [], [], [], None, [], EndReason.DONE), 5.0)
    view = whole.view(6.0, slowest=8)
    assert (view.phases[Phase.STEPPING], view.ended, view.turns) == (6, 2, 8)
    assert 3 not in {slow.index for slow in view.slowest}, "the second part's second episode"
