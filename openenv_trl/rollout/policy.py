"""The policy as the engine sees it: token ids in, sampled ids and log-probs out, in batches.

Beside it stands the policy that takes messages and gives messages, for evaluation and collecting: what it samples is
not known as tokens, so nothing can be trained on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from openenv_trl.rollout.task import Message
from openenv_trl.types import Tool


@dataclass(frozen=True)
class SamplingParameters:
    """How the policy samples.

    Attributes:
        temperature: Divides the logits. 1.0 samples the policy itself, which is what a policy gradient
            assumes.
        top_p: Keeps the smallest set of tokens of this total probability; 1.0 keeps all.
        top_k: Keeps this many tokens; 0 keeps all.
        min_p: Keeps tokens of at least this share of the likeliest one's probability; None keeps all.
        max_new_tokens: Tokens of one completion. The engine sets it for each batch, to what the episodes' limits
            leave; what is given to `RolloutEngine.run` is not used.
        row_limits: Tokens left to each prompt of the batch, in the prompts' order; ``max_new_tokens`` is the most of
            them. Set by the engine. A policy that can stop each row there saves the rest; the engine cuts in any case.
        greedy: Take the likeliest token each time; the other fields then do not matter.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float | None = None
    max_new_tokens: int = 512
    greedy: bool = False
    row_limits: tuple[int, ...] | None = None

    def limit_of(self, row: int) -> int:
        """Tokens that the prompt of this place in the batch may be completed with."""
        return self.max_new_tokens if self.row_limits is None else self.row_limits[row]


@dataclass(frozen=True)
class Completion:
    """What was sampled for one prompt.

    Attributes:
        ids: The sampled token ids, bit for bit, the end token included where one was sampled; never empty.
        logprobs: The log-prob of each id under the sampler, as long as ``ids``; None where the sampler gives
            none.
        finished: Whether the model ended its message itself; False where a limit cut it.
        version: The number of the weights that sampled it, where weights change while episodes go on; None where that
            is not told.
    """

    ids: Sequence[int]
    logprobs: Sequence[float] | None
    finished: bool
    version: int | None = None

    @property
    def finish_reason(self) -> Literal["stop", "length"]:
        """Why it ended, in the words of inference servers."""
        return "stop" if self.finished else "length"


@dataclass(frozen=True)
class FailedCompletion:
    """What a policy gives in place of one completion that failed, so that the others go on.

    Attributes:
        error: What went wrong, in words.
        retryable: Whether the same prompt may succeed when it is tried again.
    """

    error: str
    retryable: bool = True


class Policy(Protocol):
    """Whatever samples completions. The engine calls it with whole batches, one call at a time.

    A policy with a method ``opened`` (an async context manager) is kept open by the engine for each run. A policy with
    an attribute ``concurrent = True`` is called with one prompt at a time instead, as often at once as
    there are episodes: right for an inference server, which makes its own batches.

    `generate` runs on the engine's event loop: work that blocks belongs in a thread
    (``anyio.to_thread.run_sync``), or no environment moves meanwhile and the deadlines of environment calls
    run on.
    """

    async def generate(
        self, prompts: Sequence[Sequence[int]], sampling: SamplingParameters
    ) -> Sequence[Completion | FailedCompletion]:
        """Sample one completion for each prompt, in the prompts' order.

        Args:
            prompts: Token ids of each conversation so far, of different lengths, not padded.
            sampling: How to sample; ``max_new_tokens`` bounds each completion.

        Raises:
            Exception: Whatever is raised here ends the whole run with a `PolicyError`: without a policy
                nothing can go on. What concerns one prompt only is given back as a `FailedCompletion`.
        """
        ...


@dataclass(frozen=True)
class Reply:
    """One message of a policy that speaks in messages.

    Attributes:
        message: As the policy is to see it again: ``role``, ``content``, and ``tool_calls`` with ids, whose arguments
            are JSON text or objects.
        finished: Whether the model ended its message itself; False where a limit cut it.
        tokens: Tokens that it wrote; None where that is not known.
        reasoning: Thoughts that the endpoint gave beside the message, for people.
    """

    message: dict[str, Any]
    finished: bool = True
    tokens: int | None = None
    reasoning: str = ""


class MessagePolicy(Protocol):
    """A policy that takes a conversation as messages and gives the next one. It is asked by each episode on its own."""

    async def respond(
        self, messages: Sequence[Message], tools: Sequence[Tool], sampling: SamplingParameters
    ) -> Reply | FailedCompletion:
        """The model's next message.

        Args:
            messages: The conversation so far, in OpenAI's form.
            tools: What the model may call; empty where it acts in text.
            sampling: How to sample; ``max_new_tokens`` bounds the message.

        Raises:
            Exception: Whatever is raised here ends the whole run with a `PolicyError`. What concerns this
                conversation only is given back as a `FailedCompletion`.
        """
        ...
