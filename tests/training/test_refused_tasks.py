"""Rows that their environment refuses: one costs its own episode, nothing but such rows end the training at once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from openenv_trl.errors import ConfigurationError, RolloutFailureError
from openenv_trl.rollout import RolloutLimits
from openenv_trl.training.environment_factory import make_environment_factory
from openenv_trl.training.reward_func import environment_reward_func
from openenv_trl.types import StepResult, Tool

from .factory_fixtures import PROMPT

NO_GAME = "There is no game 'nosuch'. Reset with game='chess'."
NO_KEY = "Set CLOCK_KEY on the server."
REFUSED = r"refused all 2 episodes.*There is no game 'nosuch'\. Reset with game='chess'"
LIMITS = RolloutLimits(max_attempts=3, retry_delay_s=0.0)


class Games:
    """Sessions in this process, of an environment that knows one game."""

    def __init__(self) -> None:
        self.resets: list[str] = []
        self.unhealthy = 0

    async def acquire(self, timeout_s: float) -> Any:
        return type("Lease", (), {"session": self, "base_url": "here"})()

    async def release(self, lease: Any, *, healthy: bool) -> None:
        self.unhealthy += not healthy

    async def list_tools(self) -> list[Tool]:
        return [Tool(name="move", input_schema={"type": "object", "properties": {"number": {"type": "integer"}}})]

    async def reset(self, game: str = "chess", **row: Any) -> StepResult[dict[str, Any]]:
        self.resets.append(game)
        if game != "chess":
            raise ConfigurationError(NO_GAME)
        return StepResult({"message": "Play."})

    async def step(self, action: Any, timeout_s: float | None = None) -> StepResult[dict[str, Any]]:
        if action["arguments"]["number"] == 0:
            raise ConfigurationError(NO_KEY)
        return StepResult({"message": "Moved."}, reward=1.0, done=True)

    async def close(self) -> None: ...


def batch(factory: Any, games: Sequence[str], number: int = 1) -> list[float | None]:
    """The rewards of a batch, as TRL's loop plays it."""
    environments = [factory() for _ in games]
    for environment, game in zip(environments, games, strict=True):
        environment.reset(prompt=PROMPT, seed=1, game=game)
    for environment in environments:
        environment.move(number=number)
    return [environment.get_reward() for environment in environments]


def test_a_factorys_refused_row_has_no_reward_and_the_others_count() -> None:
    games = Games()
    with make_environment_factory(games, limits=LIMITS) as factory:
        assert batch(factory, ["chess", "nosuch"]) == [1.0, None]
        assert factory.metrics["failed/configuration_error"] == 1.0
        assert factory.metrics["tried_again"] == 0.0
    assert (games.resets, games.unhealthy) == (["chess", "nosuch"], 0)


def test_a_factory_whose_rows_are_all_refused_ends_with_the_first_batch() -> None:
    games = Games()
    with (
        make_environment_factory(games, limits=LIMITS, max_skipped_steps=3) as factory,
        pytest.raises(ConfigurationError, match=REFUSED),
    ):
        batch(factory, ["nosuch", "nosuch"])
    assert games.resets == ["nosuch", "nosuch"]


def test_a_factory_that_has_played_skips_a_batch_of_refused_rows() -> None:
    with make_environment_factory(Games(), limits=LIMITS, max_skipped_steps=1) as factory:
        assert batch(factory, ["chess"]) == [1.0]
        assert batch(factory, ["nosuch", "nosuch"]) == [None, None]
        with pytest.raises(RolloutFailureError, match=r"2 configuration_error \(reset: There is no game 'nosuch'"):
            batch(factory, ["nosuch", "nosuch"])


def test_a_factorys_step_that_cannot_be_done_costs_its_own_episode() -> None:
    games = Games()
    with make_environment_factory(games, limits=LIMITS) as factory:
        assert batch(factory, ["chess"]) == [1.0]
        assert batch(factory, ["chess"], number=0) == [None]
        assert factory.metrics["failed/configuration_error"] == 1.0
        assert batch(factory, ["chess"]) == [1.0]
    assert games.unhealthy == 0, "a session that was asked in vain is lent again"


def test_a_reward_functions_refused_completions_are_not_played_again() -> None:
    games = Games()
    with environment_reward_func(games, limits=LIMITS) as function:

        def reward(names: list[str], number: int) -> Any:
            asked = {"type": "function", "function": {"name": "move", "arguments": {"number": number}}}
            said = [[{"role": "assistant", "content": "", "tool_calls": [asked]}]] * len(names)
            return asyncio.run(function(completions=said, game=names, seed=[1] * len(names)))

        with pytest.raises(ConfigurationError, match=REFUSED):
            reward(["nosuch", "nosuch"], 1)
        assert reward(["chess", "nosuch"], 1) == [1.0, None]
        assert reward(["chess"], 0) == [None]
        assert function.metrics["failed/configuration_error"] == 1.0
    assert games.resets == ["nosuch", "nosuch", "chess", "nosuch", "chess"]
