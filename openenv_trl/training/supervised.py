"""Teach a tiny model the protocol: supervised training on random, well-formed games, played in the real environment.

Afterwards the model calls tools properly and plays at random; what is good play is left to reinforcement learning. The
loss covers what the environment wrote too, so that the model has a reason to look at it.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# (torch, transformers and datasets are typed in part only)
from __future__ import annotations

import math
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from openenv_trl.client import fetch_schema
from openenv_trl.errors import ConfigurationError
from openenv_trl.rollout import (
    RandomActionPolicy,
    RolloutLimits,
    ToolActions,
    Trajectory,
)
from openenv_trl.rollout.play import asking, open_pool, play_tasks, run_blocking
from openenv_trl.rollout.servers import Servers
from openenv_trl.training.tasks import tasks_from_rows
from openenv_trl.training.tiny_policy import make_tiny_policy, make_tokenizer
from openenv_trl.types import Tool

Progress = Callable[[str], None]


@dataclass(frozen=True)
class WarmStartSettings:
    """How a tiny policy is made and warm-started.

    Attributes:
        episodes: Random games to learn from.
        steps: Optimizer steps.
        batch_size: Games of one step.
        learning_rate: Peak learning rate of AdamW, reached in 30 steps and decayed linearly to zero.
        reply_weight: Weight of the model's own tokens in the loss; the environment's have 1.
        layers: Of the model.
        hidden_size: Of the model.
        concurrency: Games played at once.
        seed: Decides the model's first weights, the tasks and the order of learning. Games are played side
            by side, so who draws which random action, and with it the trained weights, varies from run to run.
    """

    episodes: int = 4096
    steps: int = 600
    batch_size: int = 64
    learning_rate: float = 4e-3
    reply_weight: float = 4.0
    layers: int = 2
    hidden_size: int = 64
    concurrency: int = 256
    seed: int = 0

    @classmethod
    def from_arguments(cls, arguments: Any, seed: int) -> WarmStartSettings:
        """The settings in `EnvironmentArguments`."""
        return cls(
            episodes=arguments.warm_start_episodes,
            steps=arguments.warm_start_steps,
            batch_size=arguments.warm_start_batch_size,
            learning_rate=arguments.warm_start_learning_rate,
            reply_weight=arguments.warm_start_reply_weight,
            layers=arguments.tiny_policy_layers,
            hidden_size=arguments.tiny_policy_hidden_size,
            seed=seed,
        )


def warm_start(
    path: str | Path,
    servers: Servers,
    rows: Any,
    settings: WarmStartSettings | None = None,
    *,
    limits: RolloutLimits | None = None,
    chat_template_kwargs: Mapping[str, Any] | None = None,
    progress: Progress = print,
) -> tuple[Any, Any]:
    """Make a tiny model that speaks an environment's protocol and plays at random, and save it.

    Args:
        path: Folder to save the model and its tokenizer in.
        servers: Addresses of the environment's servers, or what starts them.
        rows: The data set to train on later, or a list of rows like ``{"prompt": ...}``: the games begin with them.
        settings: See `WarmStartSettings`.
        limits: Of the random games.
        chat_template_kwargs: More arguments of the chat template; give those that training uses.
        progress: Told what is being done.

    Returns:
        The model and the tokenizer.

    Raises:
        ConfigurationError: None of the random games could be played to learn from.
    """
    settings = settings or WarmStartSettings()
    started = time.monotonic()
    progress(f"warm start: playing {settings.episodes} random games to learn the protocol from")
    play = partial(_play_at_random, servers, rows, limits=limits, chat_template_kwargs=chat_template_kwargs)
    tools, texts = run_blocking(_gather_texts, servers, play, settings)
    model, tokenizer = make_tiny_policy(
        path, texts, tools, layers=settings.layers, hidden_size=settings.hidden_size, seed=settings.seed
    )
    games = run_blocking(play, settings, tokenizer, settings.episodes)
    progress(
        f"warm start: {len(games)} games in {time.monotonic() - started:.0f} s; training {model.num_parameters():,} "
        f"parameters for {settings.steps} steps"
    )
    _train(model, tokenizer, games, settings, progress)
    model.save_pretrained(path)
    progress(f"warm start: done in {time.monotonic() - started:.0f} s, saved to {path}")
    return model, tokenizer


async def _gather_texts(
    servers: Servers, play: Callable[..., Awaitable[list[Trajectory]]], settings: WarmStartSettings
) -> tuple[list[Tool], list[str]]:
    """The environment's tools, and what it says in some games: played with a tokenizer that spells everything out."""
    async with open_pool(servers, sessions_per_server=1) as pool:
        lease = await pool.acquire()
        tools = list(await lease.session.list_tools())
        if not tools:
            schema = await asking(fetch_schema, pool, None)(lease.base_url)
            tools = list(ToolActions.from_schema(schema["action"]).tools)
    games = await play(replace(settings, seed=settings.seed + 1), make_tokenizer([], tools), 256, spelled_out=True)
    texts: list[str] = []
    for game in games:
        texts += [str(message.get("content", "")) for message in game.task.prompt]
        texts += [game.first_observation, *(text for turn in game.turns for text in turn.observations)]
    return tools, texts


async def _play_at_random(
    servers: Servers,
    rows: Any,
    settings: WarmStartSettings,
    tokenizer: Any,
    count: int,
    *,
    limits: RolloutLimits | None,
    chat_template_kwargs: Mapping[str, Any] | None,
    spelled_out: bool = False,
) -> list[Trajectory]:
    limits = limits or RolloutLimits()
    if spelled_out:  # a token a letter
        limits = limits.model_copy(update={"max_completion_tokens": 100_000, "max_new_tokens_per_turn": None})
    tasks = tasks_from_rows(rows, count, seeds=("warm start", settings.seed))
    played = await play_tasks(
        tasks,
        servers,
        tokenizer,
        lambda engine: RandomActionPolicy(engine.template, engine.actions, seed=settings.seed),
        limits=limits,
        concurrency=settings.concurrency,
        chat_template_kwargs=chat_template_kwargs,
    )
    games = [game for game in played if not game.end_reason.is_failure]
    if not games:
        raise ConfigurationError("No random game could be played; look at the environment servers' logs.")
    return games


def _train(
    model: Any, tokenizer: Any, games: Sequence[Trajectory], settings: WarmStartSettings, progress: Progress
) -> None:
    import torch

    rows = [[*game.prompt_ids, *game.completion_ids] for game in games]
    weights = [
        [1.0] * len(game.prompt_ids) + [settings.reply_weight if own else 1.0 for own in game.mask] for game in games
    ]
    order = random.Random(settings.seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.learning_rate, betas=(0.9, 0.99), weight_decay=0.0)

    def scale(step: int) -> float:
        return min((step + 1) / 30, 1.0) * max(0.02, 1.0 - step / settings.steps)

    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, scale)
    model.train()
    for step in range(settings.steps):
        chosen = [order.randrange(len(rows)) for _ in range(settings.batch_size)]
        width = max(len(rows[i]) for i in chosen)
        ids = torch.full((len(chosen), width), tokenizer.pad_token_id)
        weight = torch.zeros((len(chosen), width))
        for line, i in enumerate(chosen):
            ids[line, : len(rows[i])] = torch.tensor(rows[i])
            weight[line, : len(rows[i])] = torch.tensor(weights[i])
        # Padding is on the right and attention causal: no real token sees it, and its weight is 0.
        logits = model(input_ids=ids).logits[:, :-1]
        losses = torch.nn.functional.cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="none")
        loss = (losses * weight[:, 1:]).sum() / weight[:, 1:].sum()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if not math.isfinite(loss.item()):
            raise ConfigurationError(
                f"The warm start's loss is {loss.item()} at step {step}: lower warm_start_learning_rate."
            )
        if step % 100 == 0 or step == settings.steps - 1:
            progress(f"warm start: step {step + 1}/{settings.steps}  loss {loss.item():.3f}")
    model.eval()
