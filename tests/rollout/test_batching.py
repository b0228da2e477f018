"""Promises of the batcher: it is driven here by events and times, without a clock."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from openenv_trl.rollout import Completion, SamplingParameters
from openenv_trl.rollout.batching import BatchedPolicy, BatchSettings, Fire, ReadyBatcher, Wait


def batcher(live: int, *, window: float = 1.0, size: int = 100) -> ReadyBatcher:
    made = ReadyBatcher(BatchSettings(batch_window_s=window, max_batch_size=size))
    for _ in range(live):
        made.episode_started()
    return made


def test_fires_at_once_when_every_live_episode_is_ready() -> None:
    b = batcher(2)
    b.request_added(0, now=0.0)
    assert b.decide(0.0) == Wait(1.0)
    b.request_added(1, now=0.1)
    assert b.decide(0.1) == Fire((0, 1))


def test_fires_when_the_last_episode_that_was_not_ready_ends() -> None:
    b = batcher(2)
    b.request_added(0, now=0.0)
    b.episode_ended()
    assert b.decide(0.0) == Fire((0,))


def test_waits_no_longer_than_the_window_of_the_first() -> None:
    b = batcher(3)
    b.request_added(0, now=0.0)
    b.request_added(1, now=0.9)
    assert b.decide(0.95) == Wait(1.0)
    assert b.decide(1.0) == Fire((0, 1))


def test_nothing_goes_while_the_policy_generates() -> None:
    b = batcher(2)
    b.request_added(0, now=0.0)
    assert b.decide(1.0) == Fire((0,))
    b.request_added(1, now=1.0)
    assert b.decide(99.0) == Wait(None)
    b.generation_finished()
    assert b.decide(99.0) == Fire((1,))


def test_a_withdrawn_request_is_in_no_batch() -> None:
    b = batcher(2)
    b.request_added(0, now=0.0)
    b.request_withdrawn(0)
    b.request_withdrawn(7)
    assert b.decide(5.0) == Wait(None)


def test_a_full_batch_goes_first_come_first() -> None:
    b = batcher(9, size=2)
    for key in range(3):
        b.request_added(key, now=0.0)
    assert b.decide(0.0) == Fire((0, 1))


@given(st.lists(st.sampled_from(["add", "withdraw", "finish", "tick", "start", "end"]), max_size=60), st.integers(1, 4))
def test_every_request_goes_exactly_once_unless_withdrawn(events: list[str], size: int) -> None:
    b = batcher(1, size=size)
    now, waiting, sent, generating, live = 0.0, list[int](), list[int](), False, 1
    for key, event in enumerate(events):
        if event == "add":
            b.request_added(key, now)
            waiting.append(key)
        elif event == "withdraw" and waiting:
            b.request_withdrawn(waiting.pop())
        elif event == "finish" and generating:
            b.generation_finished()
            generating = False
        elif event == "start":
            b.episode_started()
            live += 1
        elif event == "end" and live:
            b.episode_ended()
            live -= 1
        elif event == "tick":
            now += 0.6
        decision = b.decide(now)
        if isinstance(decision, Fire):
            assert not generating
            assert 1 <= len(decision.keys) <= size
            assert list(decision.keys) == waiting[: len(decision.keys)]
            waiting = waiting[len(decision.keys) :]
            sent += decision.keys
            generating = True
        elif waiting and not generating:
            assert decision.until is not None
            assert decision.until > now
    assert len(sent) == len(set(sent))


class Counts:
    """Gives each prompt as many ids as it may have, and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[list[Any], int]] = []

    async def generate(self, prompts: Any, sampling: SamplingParameters) -> list[Completion]:
        self.asked.append((list(prompts), sampling.max_new_tokens))
        ids = list(range(sampling.max_new_tokens))
        return [Completion(ids, [float(i) for i in ids], finished=True) for _ in prompts]


@pytest.mark.anyio
async def test_each_completion_is_cut_to_its_own_episodes_limit() -> None:
    policy = Counts()
    batched = BatchedPolicy(policy, SamplingParameters(max_new_tokens=1), BatchSettings())
    got: dict[int, Completion] = {}

    async def ask(limit: int) -> None:
        got[limit] = await batched.complete([limit], limit)

    async with anyio.create_task_group() as service:
        service.start_soon(batched.serve)
        with batched.episode(), batched.episode():
            async with anyio.create_task_group() as askers:
                askers.start_soon(ask, 2)
                askers.start_soon(ask, 5)
        service.cancel_scope.cancel()
    assert policy.asked == [([[2], [5]], 5)]
    assert got[2] == Completion([0, 1], [0.0, 1.0], finished=False)
    assert got[5] == Completion([0, 1, 2, 3, 4], [0.0, 1.0, 2.0, 3.0, 4.0], finished=True)


@pytest.mark.anyio
async def test_an_episode_that_gave_up_waiting_is_in_no_batch() -> None:
    policy = Counts()
    batched = BatchedPolicy(policy, SamplingParameters(), BatchSettings(batch_window_s=60))
    async with anyio.create_task_group() as service:
        service.start_soon(batched.serve)
        with batched.episode(), batched.episode():
            with anyio.move_on_after(0.01):
                await batched.complete([1], 3)
            async with anyio.create_task_group() as askers:
                askers.start_soon(batched.complete, [2], 3)
                askers.start_soon(batched.complete, [3], 3)
        service.cancel_scope.cancel()
    assert policy.asked == [([[2], [3]], 3)]
