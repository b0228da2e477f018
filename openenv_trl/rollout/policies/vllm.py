"""A policy over vLLM's OpenAI-compatible server: ``POST /v1/completions``, ids in and out.

Source: vLLM's completion protocol (``return_token_ids`` since 0.10.2, ``return_tokens_as_token_ids`` before) and its
``--logprobs-mode``, by default the raw logits', as documented at docs.vllm.ai.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, cast

from openenv_trl.errors import ConfigurationError
from openenv_trl.rollout.policies.endpoint import RequestRefused
from openenv_trl.rollout.policies.settings import EndpointSettings
from openenv_trl.rollout.policies.token_server import TokenServerPolicy, no_ids, transforms
from openenv_trl.rollout.policy import Completion, FailedCompletion, SamplingParameters

LogprobsMode = Literal["processed", "raw"]
"""Of which distribution the server's log-probs are: the one that was sampled from, or the model's own."""

_NOTHING = 1e-3  # a log-prob nearer to 0 may be that of a certain token
_IMPOSSIBLE = -9999.0  # what vLLM writes for minus infinity, which JSON has not


class VllmPolicy(TokenServerPolicy):
    """Completes token ids at ``vllm serve`` (or another server that speaks as it does).

    Start it as ``vllm serve MODEL --logprobs-mode processed_logprobs``. Without that flag its log-probs are those of
    temperature 1 without top-p; they are then left out where sampling differs from it, which is found out by two
    requests of one token.

    Args:
        base_url: The server's address without ``/v1``, or several.
        model: The model's name on the server; None asks ``GET /v1/models`` and takes the only one.
        logprobs_mode: Of which distribution its log-probs are; None finds out.
        max_model_length: Tokens of prompt and completion together; None asks the server, which refuses what is longer.
        stop_ids: See `TokenServerPolicy`.
        seed: See `TokenServerPolicy`.
        version: See `TokenServerPolicy`.
        extra_body: See `TokenServerPolicy`.
        vocabulary_size: See `TokenServerPolicy`.
        settings: See `TokenServerPolicy`.

    Example:
        >>> policy = VllmPolicy("http://localhost:8000", seed=0)
        >>> trajectories = await engine.run(tasks, policy)
    """

    def __init__(
        self,
        base_url: str | Sequence[str],
        model: str | None = None,
        *,
        logprobs_mode: LogprobsMode | None = None,
        max_model_length: int | None = None,
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
        self.model = model
        self.logprobs_mode: LogprobsMode | None = logprobs_mode
        self.max_model_length = max_model_length
        self._model_known = False
        self._probed = False

    async def prepare(self, prompt: Sequence[int], sampling: SamplingParameters) -> None:
        """Ask once for the model's name and length and, where it matters, find out of what its log-probs are."""
        if self._model_known and not self._must_probe(sampling):
            return
        async with self.endpoint.preparing:
            if not self._model_known:
                if self.model is None or self.max_model_length is None:
                    await self._ask_model()
                self._model_known = True
            if self._must_probe(sampling):
                self.logprobs_mode = await self._find_logprobs_mode(list(prompt))
                self._probed = True  # only now: those that ask meanwhile wait for what is found

    def _must_probe(self, sampling: SamplingParameters) -> bool:
        return transforms(sampling) and self.logprobs_mode is None and not self._probed

    async def _ask_model(self) -> None:
        server = self.endpoint.names
        try:
            found = await self.endpoint.get("/v1/models")
        except (RequestRefused, ConfigurationError) as error:
            if self.model is None:
                raise ConfigurationError(
                    f"The server at {server} did not say which models it has ({error}): name one, model='...'."
                ) from error
            return
        listed: Any = found.get("data") or []
        models = {str(one.get("id")): one for one in cast("list[dict[str, Any]]", listed)}
        if self.model is None:
            # LoRA adapters are listed beside the model that they belong to.
            own = [name for name, one in models.items() if not one.get("parent")]
            if len(own) != 1:
                raise ConfigurationError(
                    f"The server at {server} has the models {sorted(models)}: name one, model='...'."
                )
            self.model = own[0]
        elif models and self.model not in models:
            raise ConfigurationError(
                f"The server at {server} has no model '{self.model}'; it has {', '.join(sorted(models))}."
            )
        length: Any = models.get(self.model, {}).get("max_model_len")
        if self.max_model_length is None and isinstance(length, int):
            self.max_model_length = length

    async def _complete(
        self, prompt: list[int], limit: int, sampling: SamplingParameters
    ) -> Completion | FailedCompletion:
        if self.max_model_length is not None:
            room = self.max_model_length - len(prompt)
            if room < 1:
                return FailedCompletion(
                    f"the prompt of {len(prompt)} tokens fills the model's context of {self.max_model_length}",
                    retryable=False,
                )
            limit = min(limit, room)
        version = self._version()
        found = await self.endpoint.post("/v1/completions", self._body(prompt, limit, sampling))
        choice = _choice(found)
        reason = choice.get("finish_reason")
        if reason not in ("stop", "length"):
            return FailedCompletion(f"the server ended the completion by '{reason}'")
        ids, logprobs = self._read(choice)
        if transforms(sampling) and self.logprobs_mode != "processed":
            kind = "raw" if self.logprobs_mode == "raw" else "of an unknown kind (tell it: logprobs_mode=...)"
            self._warn_once(
                f"The log-probs of the server at {self.endpoint.names} are {kind}, and sampling is not plain "
                f"(temperature {sampling.temperature:g}, top_p {sampling.top_p:g}, top_k {sampling.top_k}, min_p "
                f"{sampling.min_p}): they are left out. Start it with --logprobs-mode processed_logprobs to have them."
            )
            logprobs = None
        return self._completion(ids, logprobs, reason == "stop", version)

    def _body(self, prompt: list[int], limit: int, sampling: SamplingParameters) -> dict[str, Any]:
        # Whatever is not said, vLLM takes from the model's own generation_config: so all is said.
        body: dict[str, Any] = {
            "model": self.model,
            "prompt": prompt,
            "max_tokens": limit,
            "temperature": 0.0 if sampling.greedy else sampling.temperature,
            "top_p": 1.0 if sampling.greedy else sampling.top_p,
            "top_k": -1 if sampling.greedy or sampling.top_k <= 0 else sampling.top_k,
            "min_p": 0.0 if sampling.greedy or sampling.min_p is None else sampling.min_p,
            "repetition_penalty": 1.0,
            "logprobs": 0,  # of the sampled token alone
            "return_token_ids": True,
            "return_tokens_as_token_ids": True,
            "skip_special_tokens": False,
        }
        if self.stop_ids:
            body["stop_token_ids"] = self.stop_ids
        seed = self._seed_of(prompt)
        if seed is not None:
            body["seed"] = seed
        return body | self._extra_body

    def _read(self, choice: dict[str, Any]) -> tuple[list[int], list[float | None] | None]:
        found: Any = choice.get("logprobs")
        logprobs: dict[str, Any] = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
        ids: Any = choice.get("token_ids")
        if ids is None:
            tokens: list[Any] = logprobs.get("tokens") or []
            if not tokens or not all(str(token).startswith("token_id:") for token in tokens):
                raise no_ids(
                    self.endpoint.names,
                    "Use vLLM 0.10.2 or later (return_token_ids), or a server that answers as it does.",
                )
            ids = [int(str(token).removeprefix("token_id:")) for token in tokens]
        values: Any = logprobs.get("token_logprobs")
        if values is not None and any(v is not None and (v <= _IMPOSSIBLE or not math.isfinite(v)) for v in values):
            values = None  # a sampled token is possible: these are of some other distribution
        return cast("list[int]", ids), cast("list[float | None] | None", values)

    async def _find_logprobs_mode(self, prompt: list[int]) -> LogprobsMode | None:
        """Of which distribution the log-probs are; None where three places in the prompt did not tell.

        Sampled from the likeliest token alone (top-k 1), that token's log-prob is 0 if it is of the distribution that
        was sampled from. If it is not of that, it is as far from 0 as the model is from certain of its next token;
        and that it is not certain shows where some token's probability is neither near 0 nor near 1.
        """
        for length in dict.fromkeys((max(1, len(prompt) // 2), 1, len(prompt))):
            alone = await self._probe(prompt[:length], SamplingParameters(top_k=1))
            if alone and alone[0] < -_NOTHING:
                return "raw"
            among_all = await self._probe(prompt[:length], SamplingParameters())
            if alone and any(2 * _NOTHING < math.exp(value) < 1 - 2 * _NOTHING for value in among_all):
                return "processed"
        return None

    async def _probe(self, prompt: list[int], sampling: SamplingParameters) -> list[float]:
        """The log-probs of the next token that was sampled, and of the likeliest where the server gives it."""
        body = self._body(prompt, 1, sampling) | {"logprobs": 1}
        logprobs: Any = _choice(await self.endpoint.post("/v1/completions", body)).get("logprobs") or {}
        likeliest: dict[str, float] = (logprobs.get("top_logprobs") or [{}])[0] or {}
        sampled: list[float | None] = logprobs.get("token_logprobs") or []
        return [value for value in (*sampled[:1], *likeliest.values()) if value is not None]


def _choice(found: dict[str, Any]) -> dict[str, Any]:
    choices: Any = found.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        raise RequestRefused(f"the server's answer has no choices: {found!r:.200}", status=0, retryable=True)
    return cast("dict[str, Any]", choices[0])
