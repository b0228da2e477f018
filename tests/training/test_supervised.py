"""A warm start ends with a model that speaks the protocol: its replies are tool calls that the environment takes."""

from __future__ import annotations

from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer

from openenv_trl import RolloutLimits, Task
from openenv_trl.errors import ConnectionFailedError
from openenv_trl.evaluation import evaluate
from openenv_trl.training import TransformersPolicy, WarmStartSettings, warm_start

PROMPT = [{"role": "user", "content": "Play blackjack."}]
LIMITS = RolloutLimits(max_turns=8, max_completion_tokens=160, max_new_tokens_per_turn=8, max_invalid_actions=0)


def test_a_warm_started_model_plays_well_formed_games(blackjack_url: str, tmp_path: Path) -> None:
    said: list[str] = []
    settings = WarmStartSettings(episodes=600, steps=300, batch_size=32, layers=1, hidden_size=64, concurrency=128)
    warm_start(
        tmp_path, [blackjack_url], [{"prompt": "Play blackjack."}], settings, limits=LIMITS, progress=said.append
    )
    assert "saved to" in said[-1]

    tokenizer = AutoTokenizer.from_pretrained(tmp_path, padding_side="left")
    policy = TransformersPolicy(AutoModelForCausalLM.from_pretrained(tmp_path), tokenizer)
    tasks = [Task(prompt=PROMPT, reset={"seed": 10_000 + i}) for i in range(300)]
    report = evaluate(
        "warm", policy, tokenizer, [blackjack_url], tasks, limits=LIMITS, concurrency=100, unfinished_reward=-1.0
    )
    assert report.end_reasons["done"] >= 0.9 * 300
    assert report.failed == 0
    assert report.mean_turns > 1.05, "it hits as well as stands"


def test_no_server_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConnectionFailedError, match=r"127\.0\.0\.1:9"):
        warm_start(tmp_path, ["http://127.0.0.1:9"], [{"prompt": "x"}], WarmStartSettings(episodes=1, steps=1))
