"""What an episode talks to: the model's side of one conversation, behind one seam.

`TokenConversation` is the exact one: ids that were sampled are kept bit for bit, and nothing is rendered twice. Other
kinds (an endpoint that takes messages and gives messages) fit the same protocol, and say in their record that they are
not exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from openenv_trl.rollout.actions import ActionInterface, ParsedTurn
from openenv_trl.rollout.batching import BatchedPolicy
from openenv_trl.rollout.call_ids import with_ids
from openenv_trl.rollout.dialogue import Dialogue, SegmentedDialogue
from openenv_trl.rollout.dialogue_template import DialogueTemplate
from openenv_trl.rollout.failures import EpisodeFailed
from openenv_trl.rollout.policy import Completion
from openenv_trl.rollout.sampling_record import SampledTurn, sampled_turn
from openenv_trl.rollout.segments import Segment
from openenv_trl.rollout.task import Message
from openenv_trl.rollout.trajectory import EndReason


@dataclass(frozen=True)
class Heard:
    """One message of the model.

    Attributes:
        parsed: What it says; None where a limit cut it.
        text: The message, decoded for people.
        tokens: Tokens that the model wrote; 0 where that is not known.
    """

    parsed: ParsedTurn | None
    text: str
    tokens: int


@dataclass
class TokenRecord:
    """The tokens of a conversation, as a trajectory keeps them; empty where they are not known (``exact`` False)."""

    prompt_ids: list[int] = field(default_factory=list[int])
    completion_ids: list[int] = field(default_factory=list[int])
    mask: list[int] = field(default_factory=list[int])
    logprobs: list[float] | None = field(default_factory=list[float])
    versions: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    exact: bool = True
    sampled: list[SampledTurn] = field(default_factory=list[SampledTurn])
    earlier: list[Segment] = field(default_factory=list[Segment])


class Conversation(Protocol):
    """One conversation, begun with its prompt."""

    @property
    def tokens_used(self) -> int:
        """Tokens after the prompt so far, the model's and the environment's."""
        ...

    async def ask(self, max_new_tokens: int) -> Heard:
        """The model's next message, of at most so many tokens.

        Raises:
            EpisodeFailed: This generation failed, also when it was tried again.
            PolicyError: The policy's completions are not what they must be.
        """
        ...

    def answer(self, answers: Sequence[tuple[str, str]], max_tokens: int) -> bool:
        """Answer the model's last message; False, and nothing appended, where no token would be left to go on.

        Args:
            answers: Pairs of the tool's name and the text, in the order of the calls.
            max_tokens: Of the whole conversation after its prompt.

        Raises:
            ConfigurationError: The chat template cannot render these answers.
        """
        ...

    def record(self) -> TokenRecord:
        """The tokens so far."""
        ...


class TokenConversation:
    """The exact one: see `Dialogue`.

    Args:
        template: The chat template in pieces.
        actions: Reads actions out of sampled ids.
        policy: Who samples.
        messages: The prompt.
        max_generation_attempts: Tries of a generation that the policy gives back as failed.

    Raises:
        ConfigurationError: The chat template refuses the messages.
    """

    def __init__(
        self,
        template: DialogueTemplate,
        actions: ActionInterface,
        policy: BatchedPolicy,
        messages: Sequence[Message],
        *,
        max_generation_attempts: int = 1,
    ) -> None:
        self._template = template
        self._actions = actions
        self._policy = policy
        kind = SegmentedDialogue if template.drops_thoughts else Dialogue
        self._dialogue = kind(template, messages)
        self._attempts = max_generation_attempts
        self._calls = 0
        self._call_ids: list[str] = []
        self._sampled: list[SampledTurn] = []

    @property
    def tokens_used(self) -> int:
        """Tokens after the prompt so far."""
        return self._dialogue.tokens_used

    async def ask(self, max_new_tokens: int) -> Heard:
        """The model's next message."""
        completion = await self._complete(max_new_tokens)
        self._dialogue.append_completion(completion)
        parsed = None
        if completion.finished:
            parsed = with_ids(self._actions.parse(completion.ids, self._template), self._calls)
            self._calls += len(parsed.calls)
        self._call_ids = [call.id for call in parsed.calls] if parsed is not None else []
        return Heard(parsed, self._template.text(completion.ids), len(completion.ids))

    def answer(self, answers: Sequence[tuple[str, str]], max_tokens: int) -> bool:
        """Append the answers, where they fit."""
        if self.tokens_used + len(self._dialogue.answer_ids(answers, self._call_ids)) >= max_tokens:
            return False
        self._dialogue.append_answers(answers, self._call_ids)
        if isinstance(self._dialogue, SegmentedDialogue):
            self._dialogue.earlier[-1].sampled = self._sampled
            self._sampled = []
        return True

    def record(self) -> TokenRecord:
        """The tokens so far."""
        dialogue = self._dialogue
        return TokenRecord(
            dialogue.prompt_ids,
            dialogue.completion_ids,
            dialogue.mask,
            dialogue.logprobs,
            dialogue.versions,
            sampled=self._sampled,
            earlier=dialogue.earlier if isinstance(dialogue, SegmentedDialogue) else [],
        )

    async def _complete(self, max_new_tokens: int) -> Completion:
        context, problem = self._dialogue.context_ids(), ""
        for _ in range(self._attempts):
            completion = await self._policy.complete(context, max_new_tokens)
            if isinstance(completion, Completion):
                self._sampled.append(sampled_turn(context, completion.ids, completion.logprobs))
                return completion
            problem = completion.error
            if not completion.retryable:
                break
        raise EpisodeFailed(EndReason.GENERATION_FAILED, f"generate: {problem}")
