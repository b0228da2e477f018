"""One conversation as token ids: rendered once, then only ever appended to.

Invariant: ``completion_ids``, ``mask`` and ``logprobs`` are equally long; the ids at mask 1 are, in order and
bit for bit, the ids that were sampled; what was appended never changes.
"""

from __future__ import annotations

from collections.abc import Sequence

from openenv_trl.rollout.dialogue_template import DialogueTemplate
from openenv_trl.rollout.policy import Completion
from openenv_trl.rollout.task import Message


class Dialogue:
    """A conversation between the model and an environment.

    Attributes:
        prompt_ids: The rendered prompt.
        completion_ids: All that came after it.
        mask: 1 for sampled ids, 0 for the environment's.
        logprobs: Of the sampled ids; 0.0 for the environment's. None if a completion came without.
    """

    def __init__(self, template: DialogueTemplate, messages: Sequence[Message]) -> None:
        raise NotImplementedError

    def context_ids(self) -> list[int]:
        """Everything so far: what the policy is given."""
        raise NotImplementedError

    def append_completion(self, completion: Completion) -> None:
        """Append what the model sampled, untouched.

        Raises:
            PolicyError: It is empty, or its log-probs are not one for each id.
        """
        raise NotImplementedError

    def answer_ids(self, answers: Sequence[tuple[str, str]]) -> list[int]:
        """The ids that `append_answers` would append: to see whether they fit."""
        raise NotImplementedError

    def append_answers(self, answers: Sequence[tuple[str, str]]) -> None:
        """Append the environment's answers to the model's last message, and the header of its next one.

        Raises:
            ConfigurationError: The last message was cut by a limit; nothing can follow half a message.
        """
        raise NotImplementedError
