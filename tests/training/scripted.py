"""Training over replies that are written here, so that a test knows what was sampled."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
from datasets import Dataset
from trl import GRPOTrainer

from openenv_trl import RolloutLimits
from openenv_trl.rollout import Trajectory, read_parquet
from openenv_trl.training import EnvironmentRollout

MakeTrainer = Callable[..., GRPOTrainer]
PROMPT = [{"role": "user", "content": "Play blackjack."}]
LIMITS = RolloutLimits(max_turns=6, max_completion_tokens=120, max_new_tokens_per_turn=40, max_attempts=2)


def call(name: str, arguments: str = "{}") -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call><|im_end|>'


def rows(count: int = 16, **columns: Any) -> Dataset:
    return Dataset.from_list([{"prompt": PROMPT, "seed": i, **columns} for i in range(count)])


def by_the_cards(_: int, text: str) -> str:
    """Hits up to a sum of 16, then stands: what comes of an episode follows from its cards alone.

    In which order the episodes of a batch ask is chance. Where their order chose what they do, some runs would have no
    episode of the kind that a test needs.
    """
    return call("hit" if int(re.findall(r"Sum (\d+)", text)[-1]) < 17 else "stand")


def wait_for_sessions(url: str, most: int) -> None:
    """Wait until a server has no more sessions than so many: it closes them a moment after their client has hung up."""
    deadline = time.monotonic() + 30
    while (active := httpx.get(f"{url}/capacity", trust_env=False, timeout=30).json()["active_sessions"]) > most:
        assert time.monotonic() < deadline, f"{active} sessions are open, and not {most}"
        time.sleep(0.02)


class Replies:
    """Replaces what the model samples by replies chosen from their number and the prompt's text, and remembers them."""

    def __init__(self, trainer: GRPOTrainer, choose: Callable[[int, str], str]) -> None:
        self.sampled: list[list[int]] = []
        self._tokenizer: Any = trainer.processing_class
        self._choose = choose
        trainer._generate_single_turn = self.generate  # type: ignore[method-assign]

    def generate(self, prompt_ids: list[list[int]], *_: Any) -> tuple[list[list[int]], None]:
        prompts = [self._tokenizer.decode(ids) for ids in prompt_ids]
        ids = [self._tokenizer.encode(self._choose(len(self.sampled) + i, text)) for i, text in enumerate(prompts)]
        self.sampled += ids
        return ids, None


class Play:
    """One training step over scripted replies, and what came of it."""

    def __init__(
        self,
        make_trainer: MakeTrainer,
        url: str,
        tmp_path: Path,
        dataset: Any,
        choose: Callable[[int, str], str],
        **options: Any,
    ) -> None:
        folder = tmp_path / "trajectories"
        with EnvironmentRollout(url, **{"limits": LIMITS, "trajectory_dir": folder, **options}) as rollout:
            self.trainer = make_trainer(rollout, rollout.prepare_dataset(dataset), max_steps=1)
            self.replies = Replies(self.trainer, choose)
            self.batches: list[dict[str, Any]] = []
            score = self.trainer._generate_and_score_completions
            self.trainer._generate_and_score_completions = lambda inputs: self._keep(score(inputs))  # type: ignore
            self.trainer.train()
            self.metrics = rollout.metrics
        self.trajectories: list[Trajectory] = read_parquet(folder)
        self.log = self.trainer.state.log_history[0]

    def _keep(self, batch: dict[str, Any]) -> dict[str, Any]:
        self.batches.append(batch)
        return batch
