"""Random players with habits, for warm starts: what each does depends on what it reads, in a way drawn by lot.

A model that has only seen uniformly random play has no reason to look at the environment when it acts, and
reinforcement learning then has to find out what to look at. So half of the games of a warm start are played by
imaginary players, named in the prompt, each with random preferences for each clause that the environment may say. Every
player has a mirror image with the opposite preferences: together they favour no action anywhere, and under the plain
prompt, without a player, play is uniformly random.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Sequence
from typing import Any

from openenv_trl.rollout import ActionInterface, Completion, Message, SamplingParameters
from openenv_trl.rollout.dialogue_template import DialogueTemplate
from openenv_trl.training.tiny_policy import CLAUSE, MESSAGE_START

_PLAYER = re.compile(r"As player (\d+)\.")
_CANDIDATES = 16
"""Random actions that a player chooses from: enough that each tool is among them."""


def as_player(prompt: Sequence[Message], player: int) -> list[Message]:
    """The prompt with a player named at the end of its last message."""
    *before, last = prompt
    return [*before, {**last, "content": f"{last.get('content', '')} As player {player}."}]


class HabitualPolicy:
    """Plays at random where the prompt names no player, and by the player's habits where it names one.

    Args:
        tokenizer: A tiny policy's.
        template: Turns messages into ids.
        actions: Where random actions come from.
        seed: Of the habits and the choices.
        strength: Standard deviation of a player's preference for one tool on reading one clause.
    """

    def __init__(
        self, tokenizer: Any, template: DialogueTemplate, actions: ActionInterface, *, seed: int, strength: float = 1.0
    ) -> None:
        self._tokenizer = tokenizer
        self._template = template
        self._actions = actions
        self._seed = seed
        self._strength = strength
        self._generator = random.Random(f"play {seed}")
        self._preferences: dict[tuple[int, str, str], float] = {}

    async def generate(self, prompts: Sequence[Sequence[int]], sampling: SamplingParameters) -> list[Completion]:
        """One action for each prompt, cut to ``max_new_tokens``. See `openenv_trl.rollout.Policy`."""
        completions: list[Completion] = []
        for prompt in prompts:
            ids = self._template.message_ids(self._choose(self._tokenizer.decode(prompt)))
            kept = ids[: sampling.max_new_tokens]
            completions.append(Completion(kept, [0.0] * len(kept), len(kept) == len(ids)))
        return completions

    def _choose(self, text: str) -> Message:
        named = _PLAYER.search(text)
        if named is None:
            return self._actions.sample(self._generator)
        candidates = [self._actions.sample(self._generator) for _ in range(_CANDIDATES)]
        tools = sorted({_tool(candidate) for candidate in candidates})
        # The last message is the one to be written; the one before it was read last, and its last line is the
        # environment's: prompts and roles stand on lines before it.
        clauses = CLAUSE.findall(text.split(MESSAGE_START)[-2].splitlines()[-1])
        player = int(named.group(1))
        weights = [math.exp(sum(self._preference(player, clause, tool) for clause in clauses)) for tool in tools]
        (tool,) = self._generator.choices(tools, weights)
        return next(candidate for candidate in candidates if _tool(candidate) == tool)

    def _preference(self, player: int, clause: str, tool: str) -> float:
        pair, mirrored = divmod(player, 2)
        key = (pair, clause, tool)
        if key not in self._preferences:
            lot = random.Random(f"habit {self._seed} {pair} {clause} {tool}")
            self._preferences[key] = lot.gauss(0.0, self._strength)
        return -self._preferences[key] if mirrored else self._preferences[key]


def _tool(message: Message) -> str:
    calls = message.get("tool_calls") or [{"function": {"name": str(message.get("content"))}}]
    return str(calls[0]["function"]["name"])
