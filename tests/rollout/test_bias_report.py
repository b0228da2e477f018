"""Promises of the bias report: what was dropped, of whom, and whether the dropped were longer than the kept."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from openenv_trl.rollout import EndReason, Task, Trajectory, Turn
from openenv_trl.rollout.bias_report import bias_report

PROMPT = [{"role": "user", "content": "Play."}]


def played(reason: EndReason, turns: int = 2, *, group: Any = None, seed: int = 0, environment: str = "") -> Trajectory:
    """An episode of so many turns, of ten tokens and one second each."""
    return Trajectory(
        task=Task(PROMPT, {"seed": seed}, group=group),
        prompt_ids=[1],
        completion_ids=[5] * 10 * turns,
        mask=[1] * 10 * turns,
        logprobs=None,
        turns=[Turn() for _ in range(turns)],
        end_reason=reason,
        started_s=1.0,
        ended_s=1.0 + turns,
        environment=environment,
    )


def test_the_lengths_of_the_dropped_are_compared_with_those_of_the_kept() -> None:
    returned = [played(EndReason.DONE, 2), played(EndReason.MAX_TURNS, 4), played(EndReason.STRAGGLER, 9)]
    report = bias_report(returned, [played(EndReason.SURPLUS, 3)])
    numbers = report.metrics()
    assert numbers["dropped/fraction"] == 0.5
    assert numbers["dropped/turns_ratio"] == 2.0
    assert numbers["dropped/tokens_ratio"] == 2.0
    assert numbers["dropped/seconds_ratio"] == 2.0
    assert (numbers["dropped/straggler"], numbers["dropped/surplus"]) == (1.0, 1.0)
    text = str(report)
    assert "2 of 4 episodes were dropped: 1 straggler, 1 surplus." in text
    assert "Mean of the kept: 3.0 turns, 30 tokens, 3.0 s." in text
    assert "Mean of the dropped, as far as played: 6.0 turns, 60 tokens, 6.0 s." in text


def test_an_episode_that_never_came_to_a_turn_makes_the_dropped_no_shorter() -> None:
    returned = [played(EndReason.DONE, 2), played(EndReason.CAPACITY, 0), played(EndReason.STEP_TIMEOUT, 6)]
    assert bias_report(returned).metrics()["dropped/turns_ratio"] == 3.0
    only_unplayed = bias_report([played(EndReason.DONE), played(EndReason.CAPACITY, 0)])
    assert only_unplayed.dropped_lengths is None
    assert "dropped/turns_ratio" not in only_unplayed.metrics()


def test_groups_tasks_and_environments_that_lose_most_are_named_first() -> None:
    returned = [
        played(EndReason.DONE, group="a", seed=1, environment="cards"),
        played(EndReason.ENVIRONMENT_ERROR, group="a", seed=1, environment="cards"),
        played(EndReason.STEP_TIMEOUT, group="b", seed=2, environment="code"),
        played(EndReason.STEP_TIMEOUT, group="b", seed=3, environment="code"),
        played(EndReason.DONE, group="c", seed=4, environment="cards"),
    ]
    report = bias_report(returned)
    assert list(report.by_group) == ["b", "a"]
    assert report.empty_groups == ("b",)
    assert set(report.by_task) == {"seed 1", "seed 2", "seed 3"}
    numbers = report.metrics()
    assert numbers["dropped/fraction/code"] == 1.0
    assert numbers["dropped/fraction/cards"] == 1 / 3
    assert (numbers["dropped/groups_hit"], numbers["dropped/groups_lost"]) == (2.0, 1.0)
    text = str(report)
    assert "Groups of which nothing is left: b." in text
    assert "Dropped by group: b 2/2, a 1/2." in text
    assert "Dropped by environment: code 2/2, cards 1/3." in text


def test_tasks_are_told_apart_as_the_user_says() -> None:
    report = bias_report([played(EndReason.STEP_TIMEOUT, seed=12)], task_key=lambda task: f"level {task.reset['seed']}")
    assert list(report.by_task) == ["level 12"]


def test_a_run_that_lost_nothing_says_so() -> None:
    report = bias_report([played(EndReason.DONE), played(EndReason.NO_ACTION)])
    assert str(report) == "All 2 episodes are kept."
    assert report.metrics()["dropped/fraction"] == 0.0


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(EndReason), st.integers(0, 5), st.sampled_from(["a", "b", None])), max_size=9)
)
def test_every_episode_is_counted_once(episodes: list[tuple[EndReason, int, Any]]) -> None:
    report = bias_report([played(reason, turns, group=group) for reason, turns, group in episodes])
    assert report.played == len(episodes)
    assert sum(report.reasons.values()) == len(report.dropped) == sum(reason.is_failure for reason, _, _ in episodes)
    assert all(isinstance(value, float) for value in report.metrics().values())
    assert str(report)
