"""Drift: the counter of messages that are not trained on as they were sampled. It stays 0, and it can rise."""

from __future__ import annotations

from typing import Any

import pytest

from openenv_trl.rollout import Completion, SamplingParameters, Trajectory

pytestmark = pytest.mark.anyio
LIMITS = {"max_completion_tokens": 4_000, "max_turns": 3}


class Wrapped:
    """A policy behind another, which may meddle with what goes in and out."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    async def generate(self, prompts: Any, sampling: SamplingParameters) -> list[Completion]:
        return await self.inner.generate(prompts, sampling)


class CutsThePrompt(Wrapped):
    """As an inference server that drops the beginning of a prompt that is too long for it."""

    async def generate(self, prompts: Any, sampling: SamplingParameters) -> list[Completion]:
        for prompt in prompts:
            del prompt[: len(prompt) // 4]
        return await self.inner.generate(prompts, sampling)


class KeepsItsLists(Wrapped):
    """Gives out the lists that it changes later."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.given: list[list[int]] = []

    async def generate(self, prompts: Any, sampling: SamplingParameters) -> list[Completion]:
        completions = await self.inner.generate(prompts, sampling)
        for ids in self.given:
            ids[0] = 7
        self.given = [list(completion.ids) for completion in completions]
        return [Completion(ids, c.logprobs, c.finished) for ids, c in zip(self.given, completions, strict=True)]


async def played(make_engine: Any, tasks: Any, policy: Any) -> tuple[list[Trajectory], float]:
    engine, _ = make_engine(limits=LIMITS)
    trajectories = await engine.run(tasks(3), policy)
    assert {len(trajectory.turns) for trajectory in trajectories} == {3}
    return trajectories, engine.metrics["drift"]


@pytest.mark.parametrize("wrap", [lambda inner: inner, Wrapped, KeepsItsLists])
async def test_nothing_drifts(make_engine: Any, say: Any, tool_call: Any, tasks: Any, wrap: Any) -> None:
    trajectories, drift = await played(make_engine, tasks, wrap(say(tool_call("hit"))))
    assert drift == 0.0
    assert all(len(trajectory.sampled) == 3 for trajectory in trajectories)


async def test_a_policy_that_samples_in_another_context_is_counted(
    make_engine: Any, say: Any, tool_call: Any, tasks: Any
) -> None:
    _, drift = await played(make_engine, tasks, CutsThePrompt(say(tool_call("hit"))))
    assert drift == 9.0


@pytest.mark.parametrize("field", ["prompt_ids", "completion_ids", "mask", "logprobs"])
async def test_a_row_that_is_changed_later_is_counted(
    make_engine: Any, say: Any, tool_call: Any, tasks: Any, field: str
) -> None:
    (first, *_), _ = await played(make_engine, tasks, say(tool_call("hit")))
    values = getattr(first, field)
    values[0] = values[0] + 1 if field != "mask" else 0
    assert first.drift == {"prompt_ids": 3, "completion_ids": 3, "mask": 2, "logprobs": 1}[field]


async def test_retokenised_messages_are_counted(
    make_engine: Any, say: Any, tool_call: Any, tasks: Any, tokenizer: Any
) -> None:
    (first, *_), _ = await played(make_engine, tasks, say(tool_call("hit")))
    row = Trajectory(**{name: getattr(first, name) for name in first.__dataclass_fields__})
    text = tokenizer.decode(first.completion_ids)
    again = tokenizer.encode(text.replace("hit", "h") + "it", add_special_tokens=False)
    row.completion_ids = again[: len(first.completion_ids)]
    assert row.drift > 0
    assert first.drift == 0


async def test_what_the_environment_wrote_is_never_marked_as_sampled(
    make_engine: Any, say: Any, tool_call: Any, tasks: Any
) -> None:
    (first, *_), _ = await played(make_engine, tasks, say(tool_call("hit")))
    first.mask[first.mask.index(0)] = 1
    assert first.drift == 1
