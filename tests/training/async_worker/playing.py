"""A tiny model that has been taught to call the tools, made in seconds: for rollouts of several turns.

It hits and stands at random, as the conversations do that it learns from: those of blackjack's own environment,
rendered with the tokenizer's own chat template.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, Literal

import torch
from blackjack_env.models import BlackjackAction
from blackjack_env.server.blackjack_environment import BlackjackEnvironment

from openenv_trl.training.tiny_policy import make_tiny_policy
from openenv_trl.types import Tool

PROMPT = [{"role": "user", "content": "Play blackjack."}]
MOVES: tuple[Literal["hit"], Literal["stand"]] = ("hit", "stand")
_GAMES, _STEPS, _BATCH = 256, 80, 32


def make_playing_policy(path: Path) -> Path:
    """Make, teach and save the model and its tokenizer."""
    games = [_game(seed) for seed in range(_GAMES)]
    texts = [message["content"] for game in games for message in game if message["content"]]
    tools = [Tool(name="hit"), Tool(name="stand")]
    model, tokenizer = make_tiny_policy(path, texts, tools, layers=1, hidden_size=32)
    described = [{"type": "function", "function": {"name": t.name, "parameters": {"properties": {}}}} for t in tools]
    rows = [
        tokenizer.apply_chat_template(game, tools=described, tokenize=True, return_dict=False)[:160] for game in games
    ]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    order = random.Random(0)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        for step in range(_STEPS):
            batch = order.sample(rows, _BATCH)
            width = max(map(len, batch))
            ids = torch.tensor([row + [tokenizer.pad_token_id] * (width - len(row)) for row in batch])
            mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in batch])
            loss = model(ids, attention_mask=mask, labels=ids.masked_fill(mask == 0, -100)).loss
            optimizer.zero_grad()
            loss.backward()
            for group in optimizer.param_groups:
                group["lr"] = 1e-2 * (1 - step / _STEPS)
            optimizer.step()
    model.save_pretrained(path)
    return path


def _game(seed: int) -> list[dict[str, Any]]:
    moves, game = random.Random(seed), BlackjackEnvironment()
    seen = game.reset(seed=seed)
    messages: list[dict[str, Any]] = [{"role": "user", "content": f"{PROMPT[0]['content']}\n\n{seen.message}"}]
    while not seen.done:
        move = moves.choice(MOVES)
        seen = game.step(BlackjackAction(move=move))
        call = {"type": "function", "function": {"name": move, "arguments": {}}}
        messages.append({"role": "assistant", "content": "", "tool_calls": [call]})
        messages.append({"role": "tool", "content": seen.message})
    return messages
