"""Policies without a model: for tests, for baselines, and for the games that a model is warm-started on."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from openenv_trl.rollout.actions import ActionInterface
from openenv_trl.rollout.dialogue_template import DialogueTemplate
from openenv_trl.rollout.policy import Completion, SamplingParameters
from openenv_trl.rollout.task import Message


class ScriptedPolicy:
    """Answers each prompt by a function.

    Args:
        template: Turns messages into ids.
        choose: Given a prompt's ids, what the model says: a message, its text, or ids.
    """

    def __init__(
        self, template: DialogueTemplate, choose: Callable[[Sequence[int]], Message | str | Sequence[int]]
    ) -> None:
        raise NotImplementedError

    async def generate(
        self, prompts: Sequence[Sequence[int]], sampling: SamplingParameters
    ) -> list[Completion]:
        """One scripted completion for each prompt."""
        raise NotImplementedError


class RandomActionPolicy:
    """Answers each prompt with a random valid action, written as the chat template writes it.

    Args:
        template: Turns messages into ids.
        actions: Where valid messages are sampled from.
        seed: Of the choices.
    """

    def __init__(
        self, template: DialogueTemplate, actions: ActionInterface, *, seed: int | None = None
    ) -> None:
        self.generator = random.Random(seed)
        raise NotImplementedError

    async def generate(
        self, prompts: Sequence[Sequence[int]], sampling: SamplingParameters
    ) -> list[Completion]:
        """One random completion for each prompt."""
        raise NotImplementedError
