"""Promises of a run with strategies: stragglers cut, groups over-sampled and refilled, and all of it told."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from openenv_trl.rollout import (
    CutStragglers,
    EndReason,
    OverSampleGroups,
    RefillGroups,
    RetryWithBackOff,
    RolloutStrategies,
    Task,
    Trajectory,
)
from openenv_trl.types import StepResult

pytestmark = pytest.mark.anyio

HIT = '<tool_call>{"name": "hit", "arguments": {}}</tool_call>'
PROMPT = [{"role": "user", "content": "Play."}]


def group_of(size: int, group: str = "g", **reset: Any) -> list[Task]:
    return [Task(PROMPT, {"seed": place, **reset}, group=group, index=place) for place in range(size)]


def one_step(*, hang: Any = (), fail: Any = (), rewards: Any = None) -> Any:
    """Episodes of one step, in the order in which they begin: some hang in it, some fail."""
    begun = 0

    async def behave(session: Any, call: str, argument: Any) -> StepResult[dict[str, Any]]:
        nonlocal begun
        if call == "reset":
            session.place, begun = begun, begun + 1
            return StepResult({"message": "Begin."})
        if session.place in hang:
            await anyio.sleep_forever()
        if session.place in fail:
            raise RuntimeError("broken")
        return StepResult({"message": "."}, reward=1.0 if rewards is None else rewards[session.place], done=True)

    return behave


NO_PAUSE = RetryWithBackOff(longest_delay_s=0.0)


async def test_who_does_not_end_within_the_grace_is_cut_and_its_session_is_not_used_again(
    make_engine: Any, say: Any, tasks: Any
) -> None:
    strategies = RolloutStrategies(straggler=CutStragglers(after_fraction=0.75, grace_s=0.05))
    engine, pool = make_engine(one_step(hang={1}), strategies=strategies)
    with anyio.fail_after(20):
        trajectories = await engine.run(tasks(4), say(HIT))
    assert [t.end_reason.value for t in trajectories] == ["done", "straggler", "done", "done"]
    cut = trajectories[1]
    assert cut.reward is None
    assert len(cut.turns) == 1  # what was played is kept for the report
    assert set(cut.as_row(0).mask) == {0}
    assert sum(session.closed for session in pool.sessions) == 1
    assert pool.leased == 0
    assert engine.metrics["end/straggler"] == 0.25


async def test_a_batch_that_is_quick_enough_loses_nobody(make_engine: Any, say: Any, tasks: Any) -> None:
    strategies = RolloutStrategies(straggler=CutStragglers(after_fraction=0.1, grace_s=60))
    engine, _ = make_engine(one_step(), strategies=strategies)
    trajectories = await engine.run(tasks(6), say(HIT))
    assert {t.end_reason for t in trajectories} == {EndReason.DONE}


async def test_an_over_sampled_group_comes_back_full_though_some_hang_and_some_fail(
    make_engine: Any, say: Any, tasks: Any
) -> None:
    # Four are wanted and six are played; of those one hangs and one fails in every attempt.
    strategies = RolloutStrategies(over_sampling=OverSampleGroups(extra=2), retry=NO_PAUSE)
    engine, pool = make_engine(
        one_step(hang={1}, fail={2, 6}), strategies=strategies, limits={"max_attempts": 2, "step_timeout_s": 60}
    )
    told: list[Trajectory] = []
    with anyio.fail_after(20):
        trajectories = await engine.run(group_of(4), say(HIT), on_trajectory=told.append)
    assert [t.end_reason for t in trajectories] == [EndReason.DONE] * 4
    assert sorted(map(id, told)) == sorted(map(id, trajectories))
    assert [t.task.group for t in trajectories] == ["g"] * 4
    assert pool.leased == 0
    report = engine.last_report
    assert report.reasons in ({"environment_error": 1, "surplus": 1}, {"surplus": 2})
    assert (report.kept, report.played) == (4, 6)
    assert engine.metrics["dropped/surplus"] >= 1
    assert engine.metrics["failed_fraction"] == 0.0


async def test_rewards_have_no_say_in_which_episodes_are_kept(make_engine: Any, say: Any) -> None:
    rewards = [0.0, 5.0, 1.0, 9.0, 7.0, 8.0]
    for surplus in ("cut", "finish"):
        strategies = RolloutStrategies(over_sampling=OverSampleGroups(extra=3, surplus=surplus))
        engine, _ = make_engine(one_step(rewards=rewards), strategies=strategies)
        trajectories = await engine.run(group_of(3), say(HIT))
        assert [t.reward for t in trajectories] == rewards[:3]


async def test_where_all_finish_the_surplus_is_played_whole_and_not_learned_from(make_engine: Any, say: Any) -> None:
    strategies = RolloutStrategies(over_sampling=OverSampleGroups(extra=1, surplus="finish"), retry=NO_PAUSE)
    engine, _ = make_engine(one_step(fail={0}), strategies=strategies, limits={"max_attempts": 1})
    trajectories = await engine.run(group_of(2), say(HIT))
    assert [t.end_reason for t in trajectories] == [EndReason.DONE] * 2
    assert engine.last_report.reasons == {"environment_error": 1}

    engine, _ = make_engine(one_step(), strategies=strategies)
    await engine.run(group_of(2), say(HIT))
    (surplus,) = engine.last_report.dropped
    assert surplus.end_reason is EndReason.SURPLUS
    assert surplus.reward is None
    assert surplus.step_rewards == [1.0]


async def test_a_group_of_which_too_few_are_sound_still_gives_each_task_a_trajectory(
    make_engine: Any, say: Any
) -> None:
    strategies = RolloutStrategies(over_sampling=OverSampleGroups(extra=1), retry=NO_PAUSE)
    engine, _ = make_engine(one_step(fail={0, 1, 2}), strategies=strategies, limits={"max_attempts": 1})
    trajectories = await engine.run(group_of(3), say(HIT))
    assert [t.end_reason.is_failure for t in trajectories].count(True) == 2
    assert len({id(t) for t in trajectories}) == 3


async def test_a_group_whose_member_failed_for_good_is_refilled_alone(make_engine: Any, say: Any) -> None:
    strategies = RolloutStrategies(refill=RefillGroups(max_episodes=2), retry=NO_PAUSE)
    # Four begin; the second fails, and so does the first one in its place.
    engine, pool = make_engine(one_step(fail={1, 4}), strategies=strategies, limits={"max_attempts": 1})
    trajectories = await engine.run([*group_of(2, "a"), *group_of(2, "b")], say(HIT))
    assert [t.reward for t in trajectories] == [1.0] * 4
    assert [t.task.group for t in trajectories] == ["a", "a", "b", "b"]
    replaced = trajectories[1]
    assert replaced.failures == ["environment_error: step: broken (another episode of this task)"]
    assert replaced.task.reset["seed"] not in (0, 1)  # luck of its own, as the others have
    assert sum(name == "reset" for session in pool.sessions for name, _ in session.calls) == 6
    assert engine.last_report.by_group["a"].dropped == 2
    assert "b" not in engine.last_report.by_group


async def test_refilling_ends_where_the_task_always_fails(make_engine: Any, say: Any) -> None:
    strategies = RolloutStrategies(refill=RefillGroups(max_episodes=3), retry=NO_PAUSE)
    engine, pool = make_engine(one_step(fail=range(100)), strategies=strategies, limits={"max_attempts": 1})
    trajectories = await engine.run(group_of(2), say(HIT))
    assert [t.end_reason for t in trajectories] == [EndReason.ENVIRONMENT_ERROR] * 2
    assert sum(name == "reset" for session in pool.sessions for name, _ in session.calls) == 5
    assert engine.last_report.empty_groups == ("g",)
    assert engine.metrics["dropped/groups_lost"] == 1.0


async def test_strategies_together_leave_nothing_behind_when_the_batch_runs_out_of_time(
    make_engine: Any, say: Any
) -> None:
    strategies = RolloutStrategies(
        straggler=CutStragglers(after_fraction=0.5, grace_s=30),
        over_sampling=OverSampleGroups(extra=1),
        refill=RefillGroups(),
        retry=NO_PAUSE,
    )
    engine, pool = make_engine(
        one_step(fail=range(0, 100, 2), hang=range(1, 100, 2)),
        strategies=strategies,
        limits={"max_attempts": 2, "batch_timeout_s": 0.5},
        max_concurrent_episodes=3,
    )
    with anyio.fail_after(20):
        trajectories = await engine.run([*group_of(2, "a"), *group_of(2, "b")], say(HIT))
    assert len(trajectories) == 4
    assert all(t.end_reason.is_failure for t in trajectories)
    assert pool.leased == 0


async def test_an_observer_hears_the_end_of_every_episode_that_was_played(make_engine: Any, say: Any) -> None:
    from openenv_trl.rollout.watch.progress import BatchProgress

    progress = BatchProgress()
    strategies = RolloutStrategies(over_sampling=OverSampleGroups(extra=2), refill=RefillGroups(), retry=NO_PAUSE)
    engine, _ = make_engine(one_step(fail={0, 1, 2}), strategies=strategies, limits={"max_attempts": 1})
    await engine.run(group_of(2), say(HIT), observer=progress)
    view = progress.view(0.0)
    assert view.ended == view.episodes == engine.last_report.played
