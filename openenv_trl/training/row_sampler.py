"""Sampling inside ``model.generate``, row by row: every row its own limit and random numbers, log-probs for nothing.

transformers draws from one random stream for a whole batch, stops all rows at one limit, and gives log-probs only as
a copy of all scores of all steps. Here each step's token is chosen from the logits before transformers sees them; it
is then asked for the likeliest, which is the chosen one.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# (torch, transformers and datasets are typed in part only)
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from openenv_trl.rollout import SamplingParameters


class RowSampler:
    """A logits processor and a stopping criterion of ``model.generate(do_sample=False, ...)``.

    The filters are those of transformers' warpers and vLLM, in that order: temperature, top-k, top-p, min-p.

    Args:
        prompt_width: Ids of the padded prompts.
        limits: New tokens of each row.
        sampling: How to sample.
        seeds: Of each row; None draws from torch's global generator.
        with_logprobs: Whether to keep the log-prob of each chosen token.
    """

    def __init__(
        self,
        prompt_width: int,
        limits: Sequence[int],
        sampling: SamplingParameters,
        seeds: Sequence[int | None],
        *,
        with_logprobs: bool,
    ) -> None:
        self._width = prompt_width
        self._limits = torch.tensor(list(limits))
        self._sampling = sampling
        self._with_logprobs = with_logprobs
        self._logprobs: list[Any] = []
        self._uniforms = None if sampling.greedy else torch.stack([_uniforms(seed, max(limits)) for seed in seeds])

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        """As a logits processor: all but the chosen token of each row made impossible."""
        step = input_ids.shape[1] - self._width
        if self._uniforms is None:
            logprobs = scores.log_softmax(-1) if self._with_logprobs else scores
            chosen = scores.argmax(-1, keepdim=True)
        else:
            logprobs = self._distribution(scores)
            chosen = _choose(logprobs, self._uniforms[:, step].to(scores.device))
        if self._with_logprobs:
            self._logprobs.append(logprobs.gather(1, chosen).squeeze(1))
        return torch.full_like(scores, -torch.inf).scatter(1, chosen, 0.0)

    def stop(self, input_ids: Any, scores: Any, **_: Any) -> Any:
        """As a stopping criterion: the rows that have reached their own limit."""
        return (input_ids.shape[1] - self._width >= self._limits).to(input_ids.device)

    @property
    def logprobs(self) -> list[list[float]]:
        """Of each row, the log-prob of each token under the distribution that it was sampled from."""
        return torch.stack(self._logprobs, dim=1).tolist()

    def _distribution(self, scores: Any) -> Any:
        sampling = self._sampling
        logprobs = (scores / sampling.temperature).log_softmax(-1)
        size = logprobs.shape[-1]
        if 0 < sampling.top_k < size:
            smallest = logprobs.topk(sampling.top_k).values[:, -1:]
            logprobs = logprobs.masked_fill(logprobs < smallest, -torch.inf)
        if sampling.top_p < 1.0:
            ordered, order = logprobs.sort(descending=True)
            probabilities = ordered.softmax(-1)
            beyond = probabilities.cumsum(-1) - probabilities >= sampling.top_p
            beyond[:, 0] = False
            logprobs = logprobs.masked_fill(torch.zeros_like(beyond).scatter(1, order, beyond), -torch.inf)
        if sampling.min_p:
            least = logprobs.max(-1, keepdim=True).values + torch.tensor(sampling.min_p).log().item()
            logprobs = logprobs.masked_fill(logprobs < least, -torch.inf)
        return logprobs.log_softmax(-1)


def _choose(logprobs: Any, uniform: Any) -> Any:
    """A token for each row by the inverse of the cumulative distribution; never one of probability 0."""
    cumulative = logprobs.exp().cumsum(-1)
    whole = cumulative[:, -1:].contiguous()
    chosen = torch.searchsorted(cumulative, uniform.unsqueeze(1).to(cumulative.dtype) * whole, right=True)
    last = torch.searchsorted(cumulative, whole)  # the last of any probability: where rounding went past it
    return torch.minimum(chosen, last)


def _uniforms(seed: int | None, count: int) -> Any:
    if seed is None:
        return torch.rand(count)
    return torch.rand(count, generator=torch.Generator().manual_seed(seed))
