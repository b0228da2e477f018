"""Servers of token ids: what comes back is what was sampled, and its log-probs are those of a forward pass."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch

from openenv_trl.errors import ConfigurationError
from openenv_trl.rollout import (
    Completion,
    FailedCompletion,
    RolloutEngine,
    RolloutLimits,
    SamplingParameters,
    TextActions,
)
from openenv_trl.rollout.policies import (
    EndpointSettings,
    LlamaCppPolicy,
    SglangPolicy,
    TokenServerPolicy,
    VllmPolicy,
)

pytestmark = pytest.mark.anyio

KINDS: list[Callable[..., TokenServerPolicy]] = [VllmPolicy, SglangPolicy, LlamaCppPolicy]
PLAIN = SamplingParameters(max_new_tokens=24)
COOL = SamplingParameters(temperature=0.7, max_new_tokens=24)
FILTERED = SamplingParameters(temperature=0.7, top_p=0.8, top_k=12, min_p=0.02, max_new_tokens=24)


def completed(found: list[Completion | FailedCompletion]) -> list[Completion]:
    assert all(isinstance(one, Completion) for one in found), found
    return [one for one in found if isinstance(one, Completion)]


@pytest.mark.parametrize("sampling", [PLAIN, COOL, FILTERED], ids=["plain", "cool", "filtered"])
@pytest.mark.parametrize("kind", KINDS)
async def test_ids_are_those_sampled_and_logprobs_those_of_a_forward_pass(
    server: Any, forward_logprobs: Any, served_tokenizer: Any, prompts: Any, kind: Any, sampling: SamplingParameters
) -> None:
    before = server.numbers()["tokens"]
    policy = kind(server.url, seed=1)
    asked = prompts * 4
    completions = completed(await policy.generate(asked, sampling))
    probes = 2 if kind is VllmPolicy and sampling is not PLAIN else 0
    assert server.numbers()["tokens"] - before == sum(len(one.ids) for one in completions) + probes
    for prompt, completion in zip(asked, completions, strict=True):
        ids = list(completion.ids)
        assert completion.finished == (ids[-1] == served_tokenizer.eos_token_id)
        if kind is SglangPolicy and sampling is FILTERED:
            assert completion.logprobs is None, "SGLang has none of the filtered distribution"
            continue
        assert completion.logprobs is not None
        expected = forward_logprobs(prompt, ids, sampling)
        assert completion.logprobs == pytest.approx(expected, abs=2e-4)


@pytest.mark.parametrize("kind", KINDS)
async def test_each_prompt_has_its_own_limit_of_tokens(server: Any, prompts: list[list[int]], kind: Any) -> None:
    limits = (1, 7, 3)
    sampling = SamplingParameters(max_new_tokens=7, row_limits=limits)
    completions = completed(await kind(server.url, seed=3).generate(prompts, sampling))
    for completion, limit in zip(completions, limits, strict=True):
        assert len(completion.ids) <= limit
        assert completion.finished or len(completion.ids) == limit


@pytest.mark.parametrize("kind", KINDS)
async def test_the_same_seed_gives_the_same_completions_and_a_prompt_asked_again_others(
    server: Any, prompts: list[list[int]], kind: Any
) -> None:
    first = completed(await kind(server.url, seed=5).generate(prompts, PLAIN))
    policy = kind(server.url, seed=5)
    again = completed(await policy.generate(prompts, PLAIN))
    later = completed(await policy.generate(prompts, PLAIN))
    other = completed(await kind(server.url, seed=6).generate(prompts, PLAIN))
    assert [one.ids for one in first] == [one.ids for one in again]
    assert [one.ids for one in again] != [one.ids for one in later]
    assert [one.ids for one in again] != [one.ids for one in other]


@pytest.mark.parametrize("kind", KINDS)
async def test_greedy_takes_the_likeliest_token(server: Any, model: Any, prompts: list[list[int]], kind: Any) -> None:
    sampling = SamplingParameters(greedy=True, temperature=0.3, top_p=0.5, top_k=5, max_new_tokens=4)
    for prompt, completion in zip(prompts, completed(await kind(server.url).generate(prompts, sampling)), strict=True):
        with torch.inference_mode():
            logits = model(torch.tensor([prompt + list(completion.ids)])).logits[0, len(prompt) - 1 : -1]
        assert logits.argmax(-1).tolist() == list(completion.ids)


async def test_a_stop_id_ends_a_completion_and_stays_in_it(server: Any, prompts: list[list[int]]) -> None:
    for kind in (VllmPolicy, SglangPolicy):
        (free,) = completed(await kind(server.url, seed=2).generate(prompts[:1], PLAIN))
        stop = list(free.ids)[2]
        (stopped,) = completed(await kind(server.url, seed=2, stop_ids=[stop]).generate(prompts[:1], PLAIN))
        end = list(free.ids).index(stop) + 1
        assert (list(stopped.ids), stopped.finished) == (list(free.ids)[:end], True)
    with pytest.raises(ConfigurationError, match="takes no stop ids"):
        LlamaCppPolicy(server.url, stop_ids=[1])


@pytest.mark.parametrize("kind", KINDS)
async def test_a_prompt_too_long_fails_alone_and_is_not_tried_again(
    server: Any, model: Any, prompts: list[list[int]], kind: Any
) -> None:
    length = int(model.config.max_position_embeddings)
    before = server.fault_state()["requests"]
    too_long = prompts[0] * (length // len(prompts[0]) + 1)
    found = await kind(server.url).generate([prompts[0], too_long], SamplingParameters(max_new_tokens=4))
    assert isinstance(found[0], Completion)
    assert isinstance(found[1], FailedCompletion)
    assert not found[1].retryable
    assert server.fault_state()["requests"] - before <= 2


async def test_what_is_left_of_the_context_limits_a_completion(
    server: Any, model: Any, prompts: list[list[int]]
) -> None:
    length = int(model.config.max_position_embeddings)
    nearly = (prompts[2] * length)[: length - 3]
    (found,) = await VllmPolicy(server.url, extra_body={"ignore_eos": True}).generate([nearly], PLAIN)
    assert isinstance(found, Completion)
    assert len(found.ids) == 3


async def test_raw_logprobs_are_found_out_and_left_out_where_they_would_be_wrong(
    raw_server: Any, forward_logprobs: Any, prompts: list[list[int]], caplog: pytest.LogCaptureFixture
) -> None:
    policy = VllmPolicy(raw_server.url)
    plain = completed(await policy.generate(prompts, PLAIN))
    for prompt, completion in zip(prompts, plain, strict=True):
        assert completion.logprobs == pytest.approx(forward_logprobs(prompt, list(completion.ids), PLAIN), abs=2e-4)
    with caplog.at_level(logging.WARNING):
        cool = completed(await policy.generate(prompts, COOL))
    assert policy.logprobs_mode == "raw"
    assert all(completion.logprobs is None for completion in cool)
    assert "--logprobs-mode processed_logprobs" in caplog.text


async def test_processed_logprobs_are_found_out_with_two_tokens_for_all_prompts(
    server: Any, prompts: list[list[int]]
) -> None:
    policy = VllmPolicy(server.url)
    before = server.fault_state()["requests"]
    await policy.generate(prompts * 5, COOL)
    assert policy.logprobs_mode == "processed"
    assert server.fault_state()["requests"] - before == 15 + 2


async def test_completions_carry_the_version_at_which_their_prompt_was_sent(
    server: Any, prompts: list[list[int]]
) -> None:
    current = 7
    policy = VllmPolicy(server.url, version=lambda: current)
    assert [one.version for one in completed(await policy.generate(prompts, PLAIN))] == [7, 7, 7]
    current = 8
    assert completed(await policy.generate(prompts[:1], PLAIN))[0].version == 8
    policy.version = 9
    assert completed(await policy.generate(prompts[:1], PLAIN))[0].version == 9


async def test_the_model_is_asked_for_and_a_wrong_name_is_refused_with_the_right_one(
    server: Any, model_path: Any, prompts: list[list[int]]
) -> None:
    policy = VllmPolicy(server.url)
    await policy.generate(prompts[:1], PLAIN)
    assert policy.model == str(model_path)
    with pytest.raises(ConfigurationError, match=str(model_path)):
        await VllmPolicy(server.url, "another").generate(prompts[:1], PLAIN)


async def test_an_address_of_another_kind_of_server_is_refused_with_what_to_look_at(
    server: Any, prompts: list[list[int]]
) -> None:
    with pytest.raises(ConfigurationError, match="no /v1"):
        await VllmPolicy(server.url + "/v1", "model", max_model_length=64).generate(prompts[:1], PLAIN)


def test_an_address_that_is_none_is_refused_at_once() -> None:
    for url in ("localhost:8000", "ftp://x", "", "http://user:secret@host"):
        with pytest.raises(ConfigurationError):
            VllmPolicy(url)
    with pytest.raises(ConfigurationError):
        VllmPolicy([])


async def test_256_prompts_at_once_are_all_completed_over_kept_connections(
    server: Any, prompts: list[list[int]]
) -> None:
    policy = VllmPolicy(server.url, settings=EndpointSettings(max_connections=256))
    async with policy.opened():
        for _ in range(2):
            found = await policy.generate((prompts * 86)[:256], SamplingParameters(max_new_tokens=2))
            assert len(completed(found)) == 256


@pytest.mark.parametrize("kind", KINDS)
async def test_an_engines_trajectories_hold_what_the_server_sampled_in_the_context_that_is_trained_on(
    server: Any, model: Any, served_tokenizer: Any, make_engine: Any, tasks: Any, kind: Any
) -> None:
    _, pool = make_engine()
    actions = TextActions(lambda text: {"said": text})
    limits = RolloutLimits(max_new_tokens_per_turn=12, max_completion_tokens=200)
    engine = RolloutEngine(pool, served_tokenizer, actions=actions, limits=limits)
    before = server.numbers()
    found = await engine.run(tasks(24), kind(server.url, seed=9, version=5))
    assert server.numbers()["tokens"] - before["tokens"] == sum(sum(one.mask) for one in found)
    assert server.numbers()["largest_batch"] > 1, "all episodes ask at once, and the server makes batches"
    assert not any(one.end_reason.is_failure for one in found)
    for one in found:
        assert one.versions == [(0, 5)]
        assert one.logprobs is not None
        with torch.inference_mode():
            logits = model(torch.tensor([one.prompt_ids + one.completion_ids])).logits[0, len(one.prompt_ids) - 1 : -1]
        ids = torch.tensor(one.completion_ids).unsqueeze(1)
        expected = logits.log_softmax(-1).gather(1, ids).squeeze(1).tolist()
        for ours, forward, sampled in zip(one.logprobs, expected, one.mask, strict=True):
            assert ours == pytest.approx(forward if sampled else 0.0, abs=2e-4)
