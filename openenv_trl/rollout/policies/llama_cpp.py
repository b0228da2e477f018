"""A policy over llama.cpp's server: ``POST /completion``, ids in and out.

Source: the README of llama.cpp's server (``return_tokens`` and ``post_sampling_probs`` since December 2024).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

from openenv_trl.errors import ConfigurationError
from openenv_trl.rollout.policies.settings import EndpointSettings
from openenv_trl.rollout.policies.token_server import TokenServerPolicy, no_ids
from openenv_trl.rollout.policy import Completion, FailedCompletion, SamplingParameters

_SAMPLERS = ["temperature", "top_k", "top_p", "min_p"]
"""In the order of vLLM and SGLang; llama.cpp's own order scales by the temperature last."""


class LlamaCppPolicy(TokenServerPolicy):
    """Completes token ids at ``llama-server``.

    Start it with as many slots as episodes are to be generated at once (``--parallel 16``) and a context of their
    lengths together, and with ``--no-context-shift`` in older versions: a context that was shifted is no longer the
    one that the ids say, so such a completion counts as failed. Log-probs are of the distribution that was sampled
    from, except where a token ended in the middle of a character: the server then gives fewer, and the completion has
    none. End tokens are the model's own.

    Args:
        base_url: See `TokenServerPolicy`.
        cache_prompt: Whether a conversation's earlier tokens are taken from the server's cache. Much faster over
            several turns; its own documentation warns that log-probs then vary slightly with what was batched together.
        seed: See `TokenServerPolicy`.
        version: See `TokenServerPolicy`.
        stop_ids: Must be empty: the server takes none.
        extra_body: See `TokenServerPolicy`.
        vocabulary_size: See `TokenServerPolicy`.
        settings: See `TokenServerPolicy`.

    Example:
        >>> policy = LlamaCppPolicy("http://localhost:8080")
    """

    def __init__(
        self,
        base_url: str | Sequence[str],
        *,
        cache_prompt: bool = True,
        stop_ids: Iterable[int] = (),
        seed: int | None = None,
        version: int | Callable[[], int | None] | None = None,
        extra_body: dict[str, Any] | None = None,
        vocabulary_size: int | None = None,
        settings: EndpointSettings | None = None,
    ) -> None:
        super().__init__(
            base_url,
            stop_ids=stop_ids,
            seed=seed,
            version=version,
            extra_body=extra_body,
            vocabulary_size=vocabulary_size,
            settings=settings,
        )
        if self.stop_ids:
            raise ConfigurationError(
                "llama.cpp's server takes no stop ids: set the model's end tokens in its GGUF file, or serve the model "
                "with vLLM or SGLang."
            )
        self._cache_prompt = cache_prompt

    async def _complete(
        self, prompt: list[int], limit: int, sampling: SamplingParameters
    ) -> Completion | FailedCompletion:
        version = self._version()
        found = await self.endpoint.post("/completion", self._body(prompt, limit, sampling))
        if found.get("truncated"):
            return FailedCompletion(
                "the server dropped a part of the conversation to make it fit (truncated): give it a longer context "
                "(--ctx-size, for all slots together)",
                retryable=False,
            )
        ids: Any = found.get("tokens")
        if not isinstance(ids, list) or (not ids and found.get("tokens_predicted")):
            raise no_ids(
                self.endpoint.names,
                "Use a llama.cpp of December 2024 or later, whose /completion has return_tokens.",
            )
        kind: Any = found.get("stop_type")
        finished = kind in ("eos", "word") if kind is not None else bool(found.get("stopped_eos"))
        return self._completion(cast("list[int]", ids), _logprobs(found, cast("list[int]", ids)), finished, version)

    def _body(self, prompt: list[int], limit: int, sampling: SamplingParameters) -> dict[str, Any]:
        greedy = sampling.greedy
        body: dict[str, Any] = {
            "prompt": prompt,
            "n_predict": limit,
            "samplers": _SAMPLERS,
            "temperature": 0.0 if greedy else sampling.temperature,
            "top_p": 1.0 if greedy else sampling.top_p,
            "top_k": 0 if greedy else max(sampling.top_k, 0),
            "min_p": 0.0 if greedy or sampling.min_p is None else sampling.min_p,
            "repeat_penalty": 1.0,
            "n_probs": 1,
            # Of the likeliest token alone the sampled distribution says nothing: then the model's own is asked for.
            "post_sampling_probs": not greedy,
            "return_tokens": True,
            "cache_prompt": self._cache_prompt,
        }
        seed = self._seed_of(prompt)
        if seed is not None:
            body["seed"] = seed
        return body | self._extra_body


def _logprobs(found: dict[str, Any], ids: list[int]) -> list[float | None] | None:
    """The log-prob of each id; None unless there is one for each."""
    given: Any = found.get("completion_probabilities")
    rows = cast("list[dict[str, Any]]", given) if isinstance(given, list) else []
    if len(rows) != len(ids) or any(row.get("id", token) != token for row, token in zip(rows, ids, strict=True)):
        return None
    logprobs: list[float | None] = []
    for row in rows:
        probability: Any = row.get("prob")
        if probability is not None:
            logprobs.append(math.log(probability) if probability > 0 else None)
        else:
            logprobs.append(row.get("logprob"))
    return logprobs
