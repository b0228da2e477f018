"""What an episode's results and failures come to; and calls that were started ahead of their caller."""

from __future__ import annotations

from concurrent.futures import Future

import pytest

from openenv_trl.rollout.answer import Answer
from openenv_trl.rollout.failures import EpisodeFailed
from openenv_trl.rollout.trajectory import EndReason
from openenv_trl.training.episode_progress import OVER_TEXT, EpisodeProgress
from openenv_trl.training.started_calls import StartedCall, StartedCalls


def answer(reward: float | None = None, *, done: bool = False, truncated: bool = False) -> Answer:
    return Answer("seen", reward, done, truncated, 0, 0)


def test_a_failure_takes_the_rewards_with_it_and_stays() -> None:
    progress = EpisodeProgress()
    progress.stepped({}, answer(3.0))
    assert progress.reward() == 3.0
    assert progress.failed(EpisodeFailed(EndReason.SESSION_LOST, "step: gone")) == OVER_TEXT
    assert progress.stepped({}, answer(5.0, done=True)) == OVER_TEXT, "an answer that was under way"
    progress.left()
    assert progress.refused("no such tool") == "no such tool"
    assert (progress.reward(-1.0), progress.end_reason) == (None, EndReason.SESSION_LOST)


@pytest.mark.parametrize(
    ("done", "rewards", "unfinished", "expected"),
    [
        (True, [1.0, None], -1.0, 1.0),
        (False, [1.0], -1.0, 0.0),
        (False, [], -1.0, -1.0),
        (False, [], 0.0, None),
        (True, [None], -1.0, None),
    ],
)
def test_the_unfinished_reward_is_for_what_the_model_left(
    done: bool, rewards: list[float | None], unfinished: float, expected: float | None
) -> None:
    progress = EpisodeProgress()
    for index, reward in enumerate(rewards):
        progress.stepped({}, answer(reward, done=done and index == len(rewards) - 1))
    progress.left()
    assert progress.reward(unfinished) == expected


def test_one_invalid_action_too_many_ends_it() -> None:
    progress = EpisodeProgress(max_invalid_actions=1)
    progress.refused("a")
    assert not progress.is_over
    progress.refused("b")
    assert progress.end_reason is EndReason.INVALID_ACTION
    assert not progress.has_failed


def test_truncation_is_told_from_the_end() -> None:
    progress = EpisodeProgress()
    progress.stepped({}, answer(done=True, truncated=True))
    assert progress.end_reason is EndReason.TRUNCATED


def started(name: str, **arguments: int) -> StartedCall:
    return StartedCall(name, arguments, Future())


def test_started_calls_are_taken_in_order_and_only_by_the_same_call() -> None:
    calls = StartedCalls()
    one, two = started("move", to=1), started("move", to=2)
    calls.start([one, two])
    assert calls.take("move", {"to": 2}) is None
    assert calls.take("look", {"to": 1}) is None
    assert calls.take("move", {"to": 1}) is one.answer
    assert calls.take("move", {"to": 2}) is two.answer
    assert calls.take("move", {"to": 2}) is None


def test_what_was_not_begun_can_be_forgotten_without_harm() -> None:
    calls = StartedCalls()
    idle, running = started("a"), started("b")
    running.answer.set_running_or_notify_cancel()
    calls.start([idle])
    assert calls.forget() is False
    assert idle.answer.cancelled()
    calls.start([running, started("c")])
    assert calls.forget() is True
    assert len(calls) == 0
