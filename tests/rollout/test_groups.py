"""Promises of groups: the numbers are TRL's, and who failed or began otherwise is seen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from openenv_trl.errors import ConfigurationError
from openenv_trl.rollout import EndReason, Task, Trajectory, Turn, read_parquet, write_parquet
from openenv_trl.rollout.groups import group_trajectories, total_reward
from openenv_trl.rollout.trajectory_view import conversation, group_table, groups_table


def make(
    reward: float | None = 1.0, group: Any = 0, index: int = 0, end: EndReason = EndReason.DONE, **fields: Any
) -> Trajectory:
    turns = [] if reward is None else [Turn(text="t", actions=[{"a": 1}], observations=["o"], rewards=[reward])]
    failed = EndReason.STEP_TIMEOUT if reward is None else end
    task = Task([{"role": "user", "content": "Play."}], {"seed": 1}, group, index)
    return Trajectory(task, [1], [2, 3], [1, 0], None, turns, failed, **fields)


@pytest.mark.parametrize(
    ("scale", "advantages"),
    [
        ("group", [0.0, 0.577, -1.155, 0.577, 0.0, 0.707, -0.707]),
        ("batch", [0.0, 0.304, -0.609, 0.304, 0.0, 0.913, -0.913]),
        ("none", [0.0, 1 / 3, -2 / 3, 1 / 3, 0.0, 1.0, -1.0]),
    ],
)
def test_what_has_no_reward_is_in_no_mean_and_has_no_advantage(scale: str, advantages: list[float]) -> None:
    first = [make(reward, "a", index) for index, reward in enumerate([None, 1.0, 0.0, 1.0])]
    second = [make(reward, "b", index) for index, reward in enumerate([None, 3.0, 1.0])]
    groups = group_trajectories([*first, *second], scale_rewards=scale)
    assert [each for group in groups for each in group.advantages] == pytest.approx(advantages, abs=1e-3)


def test_a_group_is_put_together_from_the_files_of_several_processes(tmp_path: Path) -> None:
    write_parquet([make(1.0, "a", 0), make(0.0, "a", 1), make(2.0, "b", 0)], tmp_path / "step_0.parquet")
    write_parquet([make(3.0, "b", 1), make(5.0, "a", 2)], tmp_path / "step_1.parquet")
    groups = group_trajectories(read_parquet(tmp_path))
    assert [(group.name, group.rewards, group.mean) for group in groups] == [
        ("a", (1.0, 0.0, 5.0), 2.0),
        ("b", (2.0, 3.0), 2.5),
    ]


def test_groups_of_one_name_in_two_environments_stay_apart() -> None:
    assert len(group_trajectories([make(environment="a"), make(environment="b")])) == 2


def test_tasks_without_a_group_stand_alone_or_so_many_in_a_row_together() -> None:
    trajectories = [make(float(index), None, index) for index in range(4)]
    assert [len(group.trajectories) for group in group_trajectories(trajectories)] == [1] * 4
    assert [group.mean for group in group_trajectories(trajectories, group_size=2)] == [0.5, 2.5]


def test_rewards_by_source_count_once_and_by_their_weights() -> None:
    trajectory = make(9.0, rewards={"whole": 3.0, "whole/format": 1.0, "judge": None, "brief": -1.0})
    assert total_reward(trajectory) == 2.0
    assert total_reward(trajectory, {"whole": 0.5, "judge": 7.0, "brief": 2.0}) == -0.5
    assert total_reward(trajectory, {"judge": 1.0}) is None
    assert total_reward(make(9.0)) == 9.0, "no reward function was called"
    (group,) = group_trajectories([trajectory], weights={"brief": 1.0})
    assert group.rewards == (-1.0,)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"scale_rewards": "prompt"}, "scale_rewards='prompt'"),
        ({"group_size": 0}, "group_size=0"),
        ({"weights": {"formt": 1.0}}, r"\['formt'\].*\['format'\]"),
    ],
)
def test_settings_that_cannot_be_used_are_said(settings: Any, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        group_trajectories([make(rewards={"format": 1.0})], **settings)


def test_who_failed_and_who_began_otherwise_is_known() -> None:
    begins = [make(1.0, index=i, first_observation=text) for i, text in enumerate(["a", "a", "b"])]
    (group,) = group_trajectories([*begins, make(None, index=3)])
    assert group.failed == (group.trajectories[3],)
    assert dict(group.first_observations) == {"a": 2, "b": 1}, "what failed has seen nothing"


@pytest.mark.parametrize("rewards", [[0.1] * 3, [None, 1.0, None], [None] * 2])
def test_a_group_whose_rewards_do_not_differ_teaches_nothing(rewards: list[float | None]) -> None:
    (group,) = group_trajectories([make(reward, index=index) for index, reward in enumerate(rewards)])
    assert not group.teaches


def shown(what: Any, width: int = 100) -> str:
    console = Console(width=width, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(what)
    return console.export_text()


def test_tables_show_numbers_failures_and_beginnings() -> None:
    begins = [make(1.0, index=0, first_observation="Card 7."), make(-1.0, index=1, first_observation="Card 9.")]
    alike = [make(0.5, "even", index, first_observation="Card 5.") for index in range(2)]
    groups = group_trajectories([*begins, make(None, index=2), *alike])
    first, second = shown(groups_table(groups)).splitlines()[2:4]
    assert first.split() == [
        "0",
        "0",
        "3",
        "+0.000",
        "1.414",
        "-0.71",
        "to",
        "+0.71",
        "step_timeout",
        "1",
        "2",
        "different",
    ]
    assert " ".join(second.split()) == "1 even 2 +0.500 0.000 all 0 - alike"
    table = shown(group_table(groups[0]))
    assert "Card 7." in table
    assert "Card 9." in table
    assert "step_timeout" in table
    assert "all begin: Card 5." in shown(group_table(groups[1]))


def test_a_conversation_marks_each_line_by_who_wrote_it() -> None:
    call = {"id": "call_0", "type": "function", "function": {"name": "bet", "arguments": {"amount": 5}}}
    messages = [
        {"role": "user", "content": "Play.\n\nBegin [bold]7[/bold]."},
        {"role": "assistant", "content": "I bet.\nFive.", "tool_calls": [call]},
        {"role": "tool", "name": "bet", "content": "Step 1.\nGo on."},
        {"role": "assistant", "content": "", "reasoning_content": "Hm."},
    ]
    turns = [Turn(rewards=[0.5], completion_tokens=12), Turn(completion_tokens=3)]
    trajectory = make(messages=messages, failures=["session_lost: gone"], versions=[(0, 3), (40, 4)])
    trajectory.turns = turns
    lines = shown(conversation(trajectory)).splitlines()
    said = {mark: [line[2:] for line in lines if line.startswith(mark)] for mark in "█│·"}
    assert said["·"] == ["prompt (user)", "Play.", "", "Begin [bold]7[/bold]."]
    assert said["│"] == ["environment (bet)", "Step 1.", "Go on."]
    assert said["█"][1:4] == ["I bet.", "Five.", '→ bet({"amount":5}) [call_0]']
    assert said["█"][0].startswith("model, turn 1: 12 tokens")
    assert said["█"][5:] == ["(thinks) Hm."]
    assert any("earlier attempt: session_lost: gone" in line for line in lines)
    assert any("weights 3 from 0, 4 from 40" in line for line in lines)


def test_what_ended_an_episode_is_shown_though_nobody_read_it() -> None:
    messages = [{"role": "user", "content": "Play."}, {"role": "assistant", "content": "Hit."}]
    trajectory = make(messages=messages)
    trajectory.turns = [Turn(observations=["You win."], rewards=[1.0], done=True)]
    assert "│ You win." in shown(conversation(trajectory))
