"""Promises of the batcher: it is driven here by events and times, without a clock."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from openenv_trl.rollout import Completion, SamplingParameters
from openenv_trl.rollout.batching import BatchedPolicy, BatchSettings, Fire, ReadyBatcher, Wait


def batcher(live: int, *, window: float = 1.0, size: int = 100) -> ReadyBatcher:
    made = ReadyBatcher(BatchSettings(batch_window_s=window, max_batch_size=size, adaptive_window=False))
    for episode in range(live):
        made.episode_started(episode, 0.0)
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
    b.episode_ended(1)
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
    b.generation_finished(99.0)
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


EVENTS = ["add", "withdraw", "finish", "tick", "long tick", "start", "end"]


@given(st.data(), st.integers(1, 4), st.booleans())
def test_every_request_goes_once_in_order_and_within_its_window(data: st.DataObject, size: int, adaptive: bool) -> None:
    settings = BatchSettings(batch_window_s=1.0, max_window_s=3.0, max_batch_size=size, adaptive_window=adaptive)
    b, now, generating, idle_since = ReadyBatcher(settings), 0.0, False, 0.0
    absent, waiting, batch, owner = list[int](), list[int](), list[int](), dict[int, int]()
    sent, added = list[int](), dict[int, float]()
    for key in range(data.draw(st.integers(0, 80))):
        event = data.draw(st.sampled_from(EVENTS))
        if event == "start":
            b.episode_started(key, now)
            absent.append(key)
        elif event == "add" and absent:
            owner[key] = absent.pop(data.draw(st.integers(0, len(absent) - 1)))
            b.request_added(key, now, owner[key])
            waiting.append(key)
            added[key] = now
        elif event == "withdraw" and waiting:
            withdrawn = waiting.pop()
            b.request_withdrawn(withdrawn)
            b.episode_ended(owner[withdrawn])
        elif event == "finish" and generating:
            b.generation_finished(now)
            absent += [owner[answered] for answered in batch]
            generating, idle_since, batch = False, now, []
        elif event == "end" and absent:
            b.episode_ended(absent.pop())
        elif "tick" in event:
            now += 0.3 if event == "tick" else 2.0
        decision = b.decide(now)
        if isinstance(decision, Fire):
            assert not generating
            assert 1 <= len(decision.keys) <= size
            assert list(decision.keys) == waiting[: len(decision.keys)], "first come, first served"
            waiting = waiting[len(decision.keys) :]
            batch, generating = list(decision.keys), True
            sent += decision.keys
        elif waiting and not generating:
            assert absent
            assert len(waiting) < size
            assert decision.until is not None
            window = 3.0 if adaptive else 1.0
            assert now < decision.until <= max(added[waiting[0]], idle_since) + window
    assert len(sent) == len(set(sent))


def simulate(settings: BatchSettings, *, generation_s: float, step_s: Callable[[int], float], episodes: int) -> float:
    """Seconds until each of so many episodes has had ten turns, in a simulated time."""
    b, now = ReadyBatcher(settings), 0.0
    for episode in range(episodes):
        b.episode_started(episode, now)
    turns = [0] * episodes
    events = [(step_s(episode), episode) for episode in range(episodes)]
    heapq.heapify(events)
    batch, ends, played = tuple[int, ...](), None, 0
    while played < episodes:
        decision = b.decide(now)
        if isinstance(decision, Fire):
            batch, ends = decision.keys, now + generation_s
            continue
        times = [events[0][0] if events else None, ends, decision.until]
        now = min(time for time in times if time is not None)
        if ends is not None and now >= ends:
            b.generation_finished(now)
            ends = None
            for episode in batch:
                turns[episode] += 1
                if turns[episode] == 10:
                    b.episode_ended(episode)
                    played += 1
                else:
                    heapq.heappush(events, (now + step_s(episode), episode))
        while events and events[0][0] <= now:
            episode = heapq.heappop(events)[1]
            b.request_added(episode, now, episode)
    return now


@pytest.mark.parametrize(
    ("generation_s", "step_s", "spread", "at_most"),
    [
        (2.0, 0.1, 0.1, 0.7),  # long generations: gathering all episodes nearly halves the number of generations
        (2.0, 0.1, 0.5, 0.85),
        (0.5, 0.1, 0.5, 1.1),
        (0.05, 0.2, 0.5, 1.05),  # short generations: nothing to gain
        (0.001, 0.01, 0.5, 0.9),  # shorter than the fixed window: not to wait at all is better
    ],
)
def test_a_window_that_adapts_saves_where_generations_are_long_and_costs_little_elsewhere(
    generation_s: float, step_s: float, spread: float, at_most: float
) -> None:
    def seconds(adaptive: bool) -> float:
        scatter = random.Random(1)
        return simulate(
            BatchSettings(adaptive_window=adaptive),
            generation_s=generation_s,
            step_s=lambda _: step_s * scatter.lognormvariate(0.0, spread),
            episodes=64,
        )

    assert seconds(True) <= at_most * seconds(False)


def test_slow_episodes_are_not_waited_for() -> None:
    def step_s(episode: int) -> float:
        return 60.0 if episode < 2 else 0.1 + 0.001 * episode

    whole = simulate(BatchSettings(), generation_s=2.0, step_s=step_s, episodes=34)
    slow_alone = 10 * 60.0 + 10 * 2.0
    assert whole <= slow_alone + 10 * 2.0 + 1.0, "each turn of a slow one waits for one generation of others at most"


class Counts:
    """Gives each prompt as many ids as it may have, and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[list[Any], int]] = []

    async def generate(self, prompts: Any, sampling: SamplingParameters) -> list[Completion]:
        self.asked.append((list(prompts), sampling.max_new_tokens))
        ids = list(range(sampling.max_new_tokens))
        return [Completion(ids, [-float(i) for i in ids], finished=True) for _ in prompts]


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
    assert got[2] == Completion([0, 1], [0.0, -1.0], finished=False)
    assert got[5] == Completion([0, 1, 2, 3, 4], [0.0, -1.0, -2.0, -3.0, -4.0], finished=True)


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
