"""The policy in this process: each row its own limit, seed and end, log-probs of what was sampled from."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from openenv_trl.rollout import SamplingParameters
from openenv_trl.training.policies import TransformersPolicy
from openenv_trl.training.row_sampler import RowSampler

FILTERED = SamplingParameters(temperature=0.7, top_p=0.8, top_k=12, min_p=0.02, max_new_tokens=16)
PLAIN = SamplingParameters(max_new_tokens=16)


@pytest.fixture
def policy(model: Any, served_tokenizer: Any) -> Any:
    return lambda **settings: TransformersPolicy(model, served_tokenizer, with_logprobs=True, **settings)


@pytest.mark.parametrize("sampling", [PLAIN, SamplingParameters(temperature=0.7, max_new_tokens=16), FILTERED])
def test_logprobs_are_those_of_the_distribution_that_was_sampled_from(
    policy: Any, forward_logprobs: Any, prompts: list[list[int]], sampling: SamplingParameters
) -> None:
    asked = prompts * 3
    for prompt, one in zip(asked, policy(seed=1).generate_now(asked, sampling), strict=True):
        assert one.logprobs == pytest.approx(forward_logprobs(prompt, list(one.ids), sampling), abs=2e-4)


def test_each_row_stops_at_its_own_limit_or_its_end(policy: Any, prompts: list[list[int]]) -> None:
    rows = prompts * 8
    limits = tuple(1 + row % 7 for row in range(len(rows)))
    every_third = [token for token in range(130) if token % 3 == 0]
    sampling = SamplingParameters(max_new_tokens=7, row_limits=limits)
    found = policy(seed=2, stop_ids=every_third).generate_now(rows, sampling)
    for one, limit in zip(found, limits, strict=True):
        ids = list(one.ids)
        assert len(ids) == len(one.logprobs)
        assert 1 <= len(ids) <= limit
        stops = policy(stop_ids=every_third)._stop_ids
        assert all(token not in stops for token in ids[:-1])
        assert one.finished == (ids[-1] in stops)
        assert one.finished or len(ids) == limit
    assert any(one.finished for one in found)
    assert not all(one.finished for one in found)


def test_no_step_is_computed_beyond_the_last_row_that_needs_it(policy: Any, model: Any, prompts: Any) -> None:
    steps = 0

    def count(*_: Any) -> None:
        nonlocal steps
        steps += 1

    hook = model.register_forward_hook(count)
    try:
        policy().generate_now(prompts, SamplingParameters(max_new_tokens=50, row_limits=(2, 3, 1)))
    finally:
        hook.remove()
    assert steps <= 3


def test_a_seed_repeats_a_row_whatever_it_is_batched_with(policy: Any, prompts: list[list[int]]) -> None:
    together = policy(seed=3).generate_now(prompts, PLAIN)
    alone = policy(seed=3)
    assert [alone.generate_now([prompt], PLAIN)[0].ids for prompt in prompts] == [one.ids for one in together]
    assert policy(seed=4).generate_now(prompts, PLAIN)[0].ids != together[0].ids
    group = policy(seed=3).generate_now([prompts[0]] * 3, PLAIN)
    assert len({tuple(one.ids) for one in group}) == 3, "generations of a group differ"


def test_greedy_takes_the_likeliest_and_the_models_own_settings_change_nothing(
    policy: Any, model: Any, prompts: list[list[int]]
) -> None:
    greedy = SamplingParameters(greedy=True, max_new_tokens=8)
    before = policy().generate_now(prompts, greedy)
    for prompt, one in zip(prompts, before, strict=True):
        with torch.inference_mode():
            logits = model(torch.tensor([prompt + list(one.ids)])).logits[0, len(prompt) - 1 : -1]
        assert logits.argmax(-1).tolist() == list(one.ids)
    try:
        model.generation_config.repetition_penalty, model.generation_config.temperature = 1.9, 0.1
        assert [one.ids for one in policy().generate_now(prompts, greedy)] == [one.ids for one in before]
    finally:
        model.generation_config.repetition_penalty, model.generation_config.temperature = None, None


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 40),
    st.sampled_from([0.3, 1.0, 2.0]),
    st.sampled_from([1.0, 0.9, 0.2]),
    st.sampled_from([0, 1, 5]),
    st.sampled_from([None, 0.1, 0.9]),
)
def test_what_is_sampled_is_never_impossible(
    seed: int, temperature: float, top_p: float, top_k: int, min_p: float | None
) -> None:
    sampling = SamplingParameters(temperature=temperature, top_p=top_p, top_k=top_k, min_p=min_p)
    sampler = RowSampler(0, [4] * 8, sampling, [seed] * 8, with_logprobs=True)
    scores = torch.randn(8, 30, generator=torch.Generator().manual_seed(seed)) * 5
    ids = torch.zeros(8, 0, dtype=torch.long)
    for _ in range(4):
        chosen = sampler(ids, scores.clone()).argmax(-1, keepdim=True)
        ids = torch.cat([ids, chosen], dim=1)
    logprobs = torch.tensor(sampler.logprobs)
    assert torch.isfinite(logprobs).all()
    assert (logprobs <= 1e-6).all()


def test_tokens_are_as_frequent_as_they_are_likely() -> None:
    probabilities = torch.tensor([0.5, 0.3, 0.15, 0.05])
    rows = 5000
    torch.manual_seed(0)
    sampler = RowSampler(0, [1] * rows, SamplingParameters(), [None] * rows, with_logprobs=False)
    chosen = sampler(torch.zeros(rows, 0), probabilities.log().repeat(rows, 1)).argmax(-1)
    found = torch.bincount(chosen, minlength=4) / rows
    assert torch.allclose(found, probabilities, atol=0.03)
