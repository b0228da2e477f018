"""A policy over inference servers that take token ids and give token ids: what all kinds of them share.

What comes back is what was sampled, bit for bit, or an error that names the setting to change: no text is ever
encoded here. Log-probs are given only where they are those of the distribution that was sampled from.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import anyio

from openenv_trl.errors import ConfigurationError
from openenv_trl.rollout.policies.endpoint import Endpoint, RequestRefused
from openenv_trl.rollout.policies.seeds import PromptSeeds
from openenv_trl.rollout.policies.settings import EndpointSettings
from openenv_trl.rollout.policy import Completion, FailedCompletion, SamplingParameters

logger = logging.getLogger("openenv_trl.rollout")


class TokenServerPolicy(ABC):
    """Completes token ids at one or more servers of the same model; each kind of server is a subclass.

    Args:
        base_url: The server's address, or those of several with the same weights: each prompt goes to the least busy.
        stop_ids: More token ids that end a completion, beside the end tokens that the server knows of the model.
        seed: Makes sampling repeatable: each prompt's seed is made of this one, the prompt, and how often it has been
            asked before. None lets the server choose.
        version: The number of the weights that the servers hold, or a function that gives it; stamped on completions
            as it is when their prompt is sent. None where weights do not change.
        extra_body: More fields of each request, in place of those that are set here.
        vocabulary_size: How many token ids the model that is trained has (its configuration's ``vocab_size``): a
            server that gives any other serves another model, and is refused. None: it is not known, and what would not
            be found in the model is not found here. No server tells the size of its own model.
        settings: Connections, deadlines, patience and credentials.

    Raises:
        ConfigurationError: An address is none.
    """

    concurrent: ClassVar[bool] = True
    """The engine asks with each prompt as soon as it is ready: a server makes its own batches."""
    token_exact: ClassVar[bool] = True

    def __init__(
        self,
        base_url: str | Sequence[str],
        *,
        stop_ids: Iterable[int] = (),
        seed: int | None = None,
        version: int | Callable[[], int | None] | None = None,
        extra_body: dict[str, Any] | None = None,
        vocabulary_size: int | None = None,
        settings: EndpointSettings | None = None,
    ) -> None:
        self.endpoint = Endpoint(base_url, settings)
        self.stop_ids = sorted(set(stop_ids))
        self.version = version
        self.vocabulary_size = vocabulary_size
        self._extra_body = dict(extra_body or {})
        self._seeds = PromptSeeds(seed)
        self._warned: set[str] = set()

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[None, None]:
        """Keep connections for the block; the engine does so for each run."""
        async with self.endpoint.opened():
            yield

    async def aclose(self) -> None:
        """Close the idle connections of this event loop."""
        await self.endpoint.aclose()

    async def generate(
        self, prompts: Sequence[Sequence[int]], sampling: SamplingParameters
    ) -> list[Completion | FailedCompletion]:
        """Complete each prompt with a request of its own, all at once. See `openenv_trl.rollout.Policy`.

        Raises:
            ConfigurationError: The server is not one that this policy can use; the message says what to change.
            PolicyError: No server could be reached for longer than ``away_timeout_s``.
        """
        if prompts:
            await self.prepare(prompts[0], sampling)
        completions: list[Completion | FailedCompletion] = [FailedCompletion("not asked")] * len(prompts)

        async def complete(row: int) -> None:
            try:
                completions[row] = await self._complete(list(prompts[row]), sampling.limit_of(row), sampling)
            except RequestRefused as error:
                completions[row] = FailedCompletion(str(error), retryable=error.retryable)

        if len(prompts) == 1:
            await complete(0)
            return completions
        async with anyio.create_task_group() as group:
            for row in range(len(prompts)):
                group.start_soon(complete, row)
        return completions

    async def prepare(self, prompt: Sequence[int], sampling: SamplingParameters) -> None:  # noqa: B027
        """Ask the server once for what must be known before the first prompt.

        Args:
            prompt: Ids that the model may be asked with.
            sampling: How it will be sampled.

        Raises:
            ConfigurationError: The server cannot be used.
            PolicyError: It could not be reached.
        """

    @abstractmethod
    async def _complete(
        self, prompt: list[int], limit: int, sampling: SamplingParameters
    ) -> Completion | FailedCompletion:
        """One prompt; `RequestRefused` may pass."""

    def _version(self) -> int | None:
        return self.version() if callable(self.version) else self.version

    def _seed_of(self, prompt: Sequence[int]) -> int | None:
        return self._seeds.next(prompt)

    def _completion(
        self,
        ids: Sequence[int],
        logprobs: Sequence[float | None] | None,
        finished: bool,
        version: int | None,
    ) -> Completion | FailedCompletion:
        """What was sampled, if it is whole.

        Raises:
            ConfigurationError: It has an id that the model's vocabulary has not.
        """
        if not ids:
            return FailedCompletion("the server gave an empty completion")
        if self.vocabulary_size is not None and (unknown := max(ids)) >= self.vocabulary_size:
            raise ConfigurationError(
                f"The server at {self.endpoint.names} gave the token id {unknown}, and the model's vocabulary has "
                f"{self.vocabulary_size} ids, from 0: it serves another model than the one that is trained. Start it "
                "with that one, or give the address of a server that has it."
            )
        given = (
            None if logprobs is None or any(value is None for value in logprobs) else [float(v or 0) for v in logprobs]
        )
        if given is not None and len(given) != len(ids):
            return FailedCompletion(f"the server gave {len(given)} log-probs for {len(ids)} ids", retryable=False)
        return Completion(list(ids), given, finished, version)

    def _warn_once(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            logger.warning(text)


def filters(sampling: SamplingParameters) -> bool:
    """Whether sampling drops tokens, so that what is left is scaled up to a distribution of its own."""
    return not sampling.greedy and (sampling.top_p < 1.0 or sampling.top_k > 0 or bool(sampling.min_p))


def transforms(sampling: SamplingParameters) -> bool:
    """Whether tokens are sampled from another distribution than the model's own."""
    return filters(sampling) or (not sampling.greedy and sampling.temperature != 1.0)


def no_ids(server: str, remedy: str) -> ConfigurationError:
    """The error where a server gave no token ids."""
    return ConfigurationError(
        f"The server at {server} gave no token ids, so nothing that it wrote could be trained on. {remedy}"
    )
