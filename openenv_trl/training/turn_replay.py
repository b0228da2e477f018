"""Which rollout is which, turn by turn, in the tool loop of TRL's ``GRPOTrainer``.

The loop asks for the next turns of all rollouts that go on, and does not say which these are. It is replayed here:
what it does with the ids of a turn decides who goes on, and nothing else does. Pure: ids in, row numbers out.

Source: ``GRPOTrainer._tool_call_loop`` of TRL 1.15 and 1.16. A rollout leaves the loop when its turn holds no tool
call, or when what its tools answered does not fit ("overlong"); a turn beyond the budget is cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Ids = list[int]


class TurnReplay:
    """The loop of one batch.

    Args:
        max_completion_length: Tokens after the prompt, the environment's included.
        max_context_length: Tokens that the model or its backend takes.
    """

    def __init__(self, max_completion_length: int, max_context_length: int) -> None:
        self._max_completion = max_completion_length
        self._max_context = max_context_length
        self._prompt_lengths: list[int] = []
        self._contexts: list[Ids] = []
        self._calling: list[int] = []
        self._suffixes: list[Ids] = []
        self.turns = -1
        """Turns that were generated, less one: what the loop compares with its limit of iterations."""

    def rows_of(self, prompts: Sequence[Ids]) -> list[int] | None:
        """The rows whose next turn is asked for; None where the loop did something unknown."""
        if self.turns < 0:
            self._prompt_lengths = [len(prompt) for prompt in prompts]
            self._contexts = [list(prompt) for prompt in prompts]
            return list(range(len(prompts)))
        if len(self._suffixes) != len(self._calling):
            return None
        following = {
            row: self._contexts[row] + suffix for row, suffix in zip(self._calling, self._suffixes, strict=True)
        }
        rows = [row for row, ids in following.items() if not self._is_overlong(row, ids)]
        if len(rows) != len(prompts) or any(following[row] != p for row, p in zip(rows, prompts, strict=True)):
            return None
        for row in rows:
            self._contexts[row] = following[row]
        return rows

    def completed(self, rows: Sequence[int], completions: Sequence[Ids]) -> list[Ids]:
        """These rows' turns were generated; returns them as the loop goes on with them."""
        kept: list[Ids] = []
        for row, ids in zip(rows, completions, strict=True):
            room = self._max_completion - (len(self._contexts[row]) - self._prompt_lengths[row])
            ids = ids if self.turns < 0 else ids[: max(room, 0)]
            self._contexts[row] = self._contexts[row] + ids
            kept.append(ids)
        self.turns += 1
        self._suffixes = []
        return kept

    def calls_in(self, rows: Sequence[int]) -> None:
        """The turns of these rows, in order, hold tool calls."""
        self._calling = list(rows)

    def has_room(self, row: int) -> bool:
        """Whether one token more fits. Where none does, no answer of a tool can."""
        return not self._is_overlong(row, [*self._contexts[row], 0])

    @property
    def answering(self) -> int | None:
        """The row whose tools' answers are rendered next; None where there is none."""
        done = len(self._suffixes)
        return self._calling[done] if done < len(self._calling) else None

    def answered(self, suffix: Sequence[int]) -> None:
        """The answers of that row's tools were rendered as these ids."""
        self._suffixes.append(list(suffix))

    def _is_overlong(self, row: int, ids: Ids) -> bool:
        return len(ids) - self._prompt_lengths[row] > self._max_completion or len(ids) >= self._max_context


def context_length(trainer: Any) -> int:
    """Tokens that a trainer's generation takes, prompt and completion together, as its loop asks for it."""
    if trainer.use_vllm and trainer.vllm_mode == "colocate":
        return int(trainer.vllm_generation.llm.llm_engine.model_config.max_model_len)
    config = trainer.model.config
    config = config.text_config if getattr(trainer, "_is_vlm", False) else config
    return int(config.max_position_embeddings)
