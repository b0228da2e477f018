"""Policies without a model: for tests, for baselines, and for the games that a model is warm-started on."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from openenv_trl.rollout.actions import ActionInterface
from openenv_trl.rollout.dialogue_template import DialogueTemplate
from openenv_trl.rollout.policy import Completion, Reply, SamplingParameters
from openenv_trl.rollout.task import Message
from openenv_trl.types import Tool


class ScriptedPolicy:
    """Answers each prompt by a function.

    Args:
        template: Turns messages into ids.
        choose: Given a prompt's ids, what the model says: a message, its text, or ids.
    """

    def __init__(
        self, template: DialogueTemplate, choose: Callable[[Sequence[int]], Message | str | Sequence[int]]
    ) -> None:
        self.template = template
        self._choose = choose

    async def generate(self, prompts: Sequence[Sequence[int]], sampling: SamplingParameters) -> list[Completion]:
        """One scripted completion for each prompt, cut to its limit, at log-prob 0.0."""
        return [self._completion(self._choose(prompt), sampling.limit_of(row)) for row, prompt in enumerate(prompts)]

    def _completion(self, said: Any, max_new_tokens: int) -> Completion:
        if isinstance(said, str):
            said = {"role": "assistant", "content": said}
        ids = self.template.message_ids(cast("Message", said)) if isinstance(said, Mapping) else list(said)
        finished = len(ids) <= max_new_tokens
        ids = ids[:max_new_tokens]
        return Completion(ids, [0.0] * len(ids), finished)


class RandomActionPolicy(ScriptedPolicy):
    """Answers each prompt with a random valid action, written as the chat template writes it.

    Args:
        template: Turns messages into ids.
        actions: Where valid messages are sampled from: each tool equally likely, arguments drawn from its schema.
        seed: Of the choices.
    """

    def __init__(self, template: DialogueTemplate, actions: ActionInterface, *, seed: int | None = None) -> None:
        generator = random.Random(seed)
        super().__init__(template, lambda _: actions.sample(generator))


class ScriptedMessagePolicy:
    """Answers each conversation by a function, in messages: needs no tokenizer.

    Args:
        choose: Given the messages so far, what the model says: a message or its text.
    """

    def __init__(self, choose: Callable[[Sequence[Message]], Message | str]) -> None:
        self._choose = choose

    async def respond(self, messages: Sequence[Message], tools: Sequence[Tool], sampling: SamplingParameters) -> Reply:
        """The scripted message, which no limit cuts."""
        said: Any = self._choose(messages)
        return Reply({"role": "assistant", "content": said} if isinstance(said, str) else said)


class RandomMessagePolicy(ScriptedMessagePolicy):
    """Answers each conversation with a random valid action: the baseline where there is no tokenizer.

    Args:
        actions: Where valid messages are sampled from: each tool equally likely, arguments drawn from its schema.
        seed: Of the choices.
    """

    def __init__(self, actions: ActionInterface, *, seed: int | None = None) -> None:
        generator = random.Random(seed)
        super().__init__(lambda _: actions.sample(generator))
