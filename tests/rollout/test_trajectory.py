"""Promises of trajectories: as rows, as numbers, and in Parquet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from openenv_trl.errors import ConfigurationError
from openenv_trl.rollout import (
    EndReason,
    Task,
    Trajectory,
    Turn,
    read_parquet,
    rollout_metrics,
    write_parquet,
)


def make(end_reason: EndReason = EndReason.DONE, rewards: Any = (1.0,), **fields: Any) -> Trajectory:
    fields = {"logprobs": [-0.5, 0.0, -0.25], "task": Task([{"role": "user", "content": "x"}], {"seed": 1}, 3)} | fields
    return Trajectory(
        prompt_ids=[1, 2],
        completion_ids=[3, 4, 5],
        mask=[1, 0, 1],
        turns=[Turn(text="t", actions=[{"a": 1}], rewards=list(rewards), observations=["o"])],
        end_reason=end_reason,
        **fields,
    )


def test_every_reason_is_either_played_or_failed() -> None:
    played = {reason for reason in EndReason if not reason.is_failure}
    assert {r.value for r in played} == {"done", "truncated", "no_action", "invalid_action", "max_turns", "max_tokens"}
    assert {reason for reason in EndReason if reason.is_unfinished} == played - {EndReason.DONE, EndReason.TRUNCATED}


@pytest.mark.parametrize("reason", [reason for reason in EndReason if reason.is_failure])
def test_a_failed_episode_has_no_reward_and_nothing_to_train_on(reason: EndReason) -> None:
    trajectory = make(reason)
    assert trajectory.reward is None
    row = trajectory.as_row(9)
    assert (row.prompt_ids, row.completion_ids, row.mask, row.logprobs) == ([1, 2], [9], [0], [0.0])


def test_a_played_episode_gives_its_tokens() -> None:
    row = make(logprobs=None).as_row(9)
    assert (row.completion_ids, row.mask, row.logprobs) == ([3, 4, 5], [1, 0, 1], None)


@pytest.mark.parametrize(("rewards", "total"), [((1.0, None, 2.0), 3.0), ((None, None), None), ((), 0)])
def test_the_reward_is_the_sum_of_what_was_given(rewards: Any, total: float | None) -> None:
    assert make(rewards=rewards).reward == total


def test_trajectories_come_back_from_parquet_as_they_were(tmp_path: Path) -> None:
    trajectories = [make(), make(EndReason.STEP_TIMEOUT, error="step: too slow", logprobs=None, base_url="http://a")]
    first = write_parquet(trajectories, tmp_path / "steps")
    second = write_parquet(trajectories[:1], tmp_path / "steps" / "zzz.parquet")
    assert first != second
    assert read_parquet(first) == trajectories
    assert read_parquet(tmp_path / "steps") == [*trajectories, trajectories[0]]
    assert [p.suffix for p in (tmp_path / "steps").iterdir()] == [".parquet"] * 2


def test_parquet_columns_can_be_queried_without_this_package(tmp_path: Path) -> None:
    import pyarrow.parquet

    path = write_parquet([make(), make(EndReason.SESSION_LOST)], tmp_path)
    columns = pyarrow.parquet.read_table(path, columns=["reward", "end_reason", "group"]).to_pydict()
    assert columns == {"reward": [1.0, None], "end_reason": ["done", "session_lost"], "group": ["3", "3"]}


def nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


KEPT: dict[str, Any] = {
    "over 64 bits": 2**70,
    "under 64 bits": -(2**64),
    "a lone surrogate": "é\ud83d\U0001f600",
    "a surrogate as a key": {"\udfff": [2**70, "a"]},
    "a large float": [1.5e300, 2**70],
    "140 levels": nested(140),
    "240 levels": nested(240),
}


@pytest.mark.parametrize("value", KEPT.values(), ids=KEPT.keys())
def test_whatever_was_played_is_stored_and_comes_back_as_it_was(tmp_path: Path, value: Any) -> None:
    trajectory = make(messages=[{"role": "assistant", "content": "", "tool_calls": [{"arguments": value}]}])
    trajectory.turns[0].actions = [{"x": value}]
    assert read_parquet(write_parquet([trajectory], tmp_path)) == [trajectory]


class Mute:
    def __str__(self) -> str:
        raise ValueError("no words")


ODD: dict[str, Any] = {
    "5000 levels": nested(5000),
    "6000 digits": 10**6000,
    "no number": {"a": float("nan"), "b": 2**70},
    "keys that are no texts": {(1, 2): 2**70, 3: None},
    "an object without words": Mute(),
    "such an object among others": [Mute(), 2**70],
}


@pytest.mark.parametrize("value", ODD.values(), ids=ODD.keys())
def test_writing_never_fails_for_what_was_played(tmp_path: Path, value: Any) -> None:
    texts = {"error": "step: \ud83d", "first_observation": "\ud83d", "base_url": "\ud83d"}
    trajectory = make(EndReason.STEP_TIMEOUT, messages=[{"role": "user", "content": value}], **texts)
    trajectory.turns[0].actions = [{"x": value}]
    (read,) = read_parquet(write_parquet([trajectory], tmp_path))
    assert read.error == "step: \ufffd"
    assert read.completion_ids == trajectory.completion_ids


def test_a_trajectory_is_shown_in_one_short_line() -> None:
    trajectory = make(messages=[{"role": "user", "content": "x" * 10_000}])
    assert repr(trajectory) == "Trajectory(done, reward=1.0, turns=1, tokens=3)"


def test_trajectories_that_are_not_there_are_missed(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no trajectories at"):
        read_parquet(tmp_path / "none.parquet")


def test_a_runs_numbers_are_flat_floats() -> None:
    numbers = rollout_metrics([make(), make(EndReason.STEP_TIMEOUT, attempts=3)], batch_sizes=[2, 1])
    assert all(isinstance(value, float) for value in numbers.values())
    assert numbers["end/done"] == numbers["end/step_timeout"] == numbers["failed_fraction"] == 0.5
    assert (numbers["retries"], numbers["reward"], numbers["batch_size"]) == (2.0, 1.0, 1.5)
    assert (numbers["model_tokens"], numbers["environment_tokens"]) == (2.0, 1.0)
    assert rollout_metrics([]) == {"episodes": 0.0}


@pytest.mark.parametrize("prompt", ["Play.", [], [{"content": "x"}], None])
def test_a_prompt_that_is_no_list_of_messages_is_refused(prompt: Any) -> None:
    with pytest.raises(ConfigurationError, match="list of messages"):
        Task(prompt)


def test_reset_arguments_must_be_names() -> None:
    with pytest.raises(ConfigurationError, match="not a name"):
        Task([{"role": "user", "content": "x"}], {"not a name": 1})
