"""One conversation as token ids: rendered once, then only ever appended to.

Invariant: ``completion_ids``, ``mask`` and ``logprobs`` are equally long; the ids at mask 1 are, in order and bit
for bit, the ids that were sampled; what was appended never changes.
"""

from __future__ import annotations

from collections.abc import Sequence

from openenv_trl.errors import PolicyError, SessionStateError
from openenv_trl.rollout.dialogue_template import DialogueTemplate
from openenv_trl.rollout.policy import Completion
from openenv_trl.rollout.segments import Segment
from openenv_trl.rollout.task import Message


class Dialogue:
    """A conversation between the model and an environment.

    Attributes:
        prompt_ids: The rendered prompt.
        completion_ids: All that came after it.
        mask: 1 for sampled ids, 0 for the environment's.
        logprobs: Of the sampled ids; 0.0 for the environment's. None if a completion came without.
        versions: Which weights sampled what: pairs of the place in ``completion_ids`` where a version begins, and its
            number; empty where the policy does not tell.
    """

    def __init__(self, template: DialogueTemplate, messages: Sequence[Message]) -> None:
        self.template = template
        self.prompt_ids = template.prompt_ids(messages)
        self.completion_ids: list[int] = []
        self.mask: list[int] = []
        self.logprobs: list[float] | None = []
        self.versions: list[tuple[int, int]] = []
        self._last: Completion | None = None

    @property
    def tokens_used(self) -> int:
        """Tokens of the context beyond the prompt that the dialogue began with."""
        return len(self.completion_ids)

    def context_ids(self) -> list[int]:
        """Everything so far: what the policy is given."""
        return self.prompt_ids + self.completion_ids

    def append_completion(self, completion: Completion) -> None:
        """Append what the model sampled, untouched.

        Raises:
            PolicyError: It is empty, or its log-probs are not one for each id.
            SessionStateError: The model's last message has not been answered.
        """
        ids, logprobs = completion.ids, completion.logprobs
        if self._last is not None:
            raise SessionStateError("The model has already spoken: answer it before it speaks again.")
        if not ids:
            raise PolicyError("The policy gave an empty completion; it must give at least the end token.")
        if logprobs is not None and len(logprobs) != len(ids):
            raise PolicyError(f"The policy gave {len(logprobs)} log-probs for {len(ids)} ids; give one for each.")
        version = completion.version
        if version is not None and (not self.versions or self.versions[-1][1] != version):
            self.versions.append((len(self.completion_ids), version))
        self.completion_ids.extend(ids)
        self.mask.extend([1] * len(ids))
        if logprobs is None:
            self.logprobs = None
        elif self.logprobs is not None:
            self.logprobs.extend(logprobs)
        self._last = completion

    def answer_ids(self, answers: Sequence[tuple[str, str]], call_ids: Sequence[str] = ()) -> list[int]:
        """The ids that `append_answers` would append: to see whether they fit.

        Raises:
            SessionStateError: The model has not spoken, or its message was cut by a limit: nothing can follow half a
                message.
        """
        if self._last is None or not self._last.finished:
            what = "has not spoken" if self._last is None else "was cut off in the middle of its message"
            raise SessionStateError(f"There is nothing to answer: the model {what}.")
        return self.template.answer_ids(answers, self._last.ids, call_ids)

    def append_answers(self, answers: Sequence[tuple[str, str]], call_ids: Sequence[str] = ()) -> None:
        """Append the environment's answers to the model's last message, and the header of its next one.

        Args:
            answers: Pairs of the tool's name and the text, in the order of the calls.
            call_ids: The ids of the calls, where the template is to show them.

        Raises:
            SessionStateError: As for `answer_ids`.
        """
        ids = self.answer_ids(answers, call_ids)
        self.completion_ids.extend(ids)
        self.mask.extend([0] * len(ids))
        if self.logprobs is not None:
            self.logprobs.extend([0.0] * len(ids))
        self._last = None


class SegmentedDialogue(Dialogue):
    """A dialogue that leaves out the thoughts of earlier messages, as its chat template does: see `segments`.

    ``prompt_ids`` and all else are then those of the last message alone; ``earlier`` holds the others.
    """

    def __init__(self, template: DialogueTemplate, messages: Sequence[Message]) -> None:
        super().__init__(template, messages)
        self.earlier: list[Segment] = []
        self._history = template.thoughtless_history(messages)
        self._prompt_tokens = len(self.prompt_ids)

    @property
    def tokens_used(self) -> int:
        """Tokens of the context beyond the prompt that the dialogue began with."""
        return len(self.prompt_ids) - self._prompt_tokens + len(self.completion_ids)

    def append_answers(self, answers: Sequence[tuple[str, str]], call_ids: Sequence[str] = ()) -> None:
        """Begin a new segment, whose prompt is the conversation so far without thoughts.

        Raises:
            SessionStateError: As for `answer_ids`.
        """
        self.answer_ids(answers, call_ids)
        assert self._last is not None
        said, tail = self.template.thoughtless(answers, self._last.ids)
        self.earlier.append(Segment(self.prompt_ids, self.completion_ids, self.mask, self.logprobs, self.versions))
        self.prompt_ids = self._history.spoken(said, tail)
        self.completion_ids, self.mask, self.logprobs, self.versions = [], [], [], []
        self._last = None
