"""Promises about single generations: a failed one, one prompt at a time, row by row limits, and weights' versions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from openenv_trl.rollout import EndReason, FailedCompletion, SamplingParameters

pytestmark = pytest.mark.anyio


class FailsAlone:
    """Completes all prompts but the first of each batch, which fails so many times."""

    def __init__(self, inner: Any, times: int, *, retryable: bool = True) -> None:
        self.inner, self.left, self.retryable = inner, times, retryable

    async def generate(self, prompts: Any, sampling: SamplingParameters) -> list[Any]:
        completions: list[Any] = list(await self.inner.generate(prompts, sampling))
        if self.left:
            self.left -= 1
            completions[0] = FailedCompletion("the server was busy", retryable=self.retryable)
        return completions


async def test_a_generation_that_failed_alone_is_made_again_alone(
    make_engine: Any, say: Any, tool_call: Any, tasks: Any
) -> None:
    engine, pool = make_engine()
    policy = FailsAlone(say(tool_call("hit")), times=1)
    trajectories = await engine.run(tasks(4), policy)
    assert {t.end_reason for t in trajectories} == {EndReason.DONE}
    assert [t.attempts for t in trajectories] == [1, 1, 1, 1]  # the session went on
    assert sum(1 for session in pool.sessions for name, _ in session.calls if name == "reset") == 4


@pytest.mark.parametrize(("retryable", "times"), [(True, 3), (False, 1)])
async def test_a_generation_that_keeps_failing_ends_its_own_episode_only(
    retryable: bool, times: int, make_engine: Any, say: Any, tool_call: Any, tasks: Any
) -> None:
    engine, _ = make_engine()
    (alone,) = await engine.run(tasks(1), FailsAlone(say(tool_call("hit")), times=times, retryable=retryable))
    assert alone.end_reason is EndReason.GENERATION_FAILED
    assert alone.reward is None
    assert "the server was busy" in (alone.error or "")


async def test_a_concurrent_policy_gets_each_prompt_as_it_is_ready(
    make_engine: Any, say: Any, tool_call: Any, tasks: Any
) -> None:
    engine, _ = make_engine()
    policy = say(tool_call("hit"))
    policy.concurrent = True
    trajectories = await engine.run(tasks(5), policy)
    assert {t.end_reason for t in trajectories} == {EndReason.DONE}
    assert set(policy.batches) == {1}


async def test_the_tokens_left_to_each_row_reach_the_policy(
    make_engine: Any, say: Any, tool_call: Any, tasks: Any
) -> None:
    engine, _ = make_engine(limits={"max_new_tokens_per_turn": 40})
    seen: list[Any] = []

    class Watches:
        inner = say(tool_call("hit"))

        async def generate(self, prompts: Any, sampling: SamplingParameters) -> Any:
            seen.append((len(prompts), sampling.row_limits, sampling.max_new_tokens))
            return await self.inner.generate(prompts, sampling)

    await engine.run(tasks(3), Watches())
    assert all(len(limits) == count and max(limits) == most for count, limits, most in seen)


async def test_the_weights_that_sampled_each_span_are_kept(
    make_engine: Any, say: Any, tool_call: Any, tasks: Any
) -> None:
    engine, _ = make_engine()

    class Learns:
        inner, version = say(tool_call("hit")), 6

        async def generate(self, prompts: Any, sampling: SamplingParameters) -> Any:
            self.version += 1
            said = await self.inner.generate(prompts, sampling)
            return [replace(each, version=min(self.version, 8)) for each in said]

    (trajectory,) = await engine.run(tasks(1), Learns())
    starts = [start for start, _ in trajectory.versions]
    assert [version for _, version in trajectory.versions] == [7, 8]
    assert starts[0] == 0
    assert trajectory.mask[starts[1]] == 1
    assert trajectory.mask[starts[1] - 1] == 0
