"""Reward functions from an experiment's YAML.

rewards:
  - {type: environment, unfinished: -1.0}
  - {type: format, invalid: -0.2, weight: 0.5}
  - type: gate
    condition: {type: environment}
    reward: {type: length, max_tokens: 256}
  - {type: function, function: "my_package.rewards:politeness", weight: 0.1}
"""

from __future__ import annotations

import importlib
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from openenv_trl.errors import ConfigurationError
from openenv_trl.rewards.composition import by_environment, compose, gate
from openenv_trl.rewards.environment import environment_reward
from openenv_trl.rewards.function import RewardFunction
from openenv_trl.rewards.judge import JudgeReward, JudgeSettings
from openenv_trl.rewards.shaping import discounted_reward, format_reward, length_reward, turn_penalty
from openenv_trl.settings_errors import problems


class _Settings(BaseModel, ABC):
    model_config = ConfigDict(extra="forbid", frozen=True)

    weight: float = 1.0
    """What its value is multiplied by in the sum of all rewards."""

    @abstractmethod
    def build(self) -> RewardFunction:
        """The reward function."""


class EnvironmentRewardSettings(_Settings):
    """The sum of the environment's own rewards: see `environment_reward`."""

    type: Literal["environment"]
    unfinished: float = 0.0
    """Added where the model left the episode without an end."""

    def build(self) -> RewardFunction:
        """The reward function."""
        return environment_reward(unfinished=self.unfinished)


class DiscountedRewardSettings(_Settings):
    """The environment's rewards, sooner ones worth more: see `discounted_reward`."""

    type: Literal["discounted"]
    gamma: float = Field(default=0.99, ge=0, le=1)
    """The discount of each action."""
    unfinished: float = 0.0
    """Added where the model left the episode without an end."""

    def build(self) -> RewardFunction:
        """The reward function."""
        return discounted_reward(gamma=self.gamma, unfinished=self.unfinished)


class FormatRewardSettings(_Settings):
    """For well-formed actions: see `format_reward`."""

    type: Literal["format"]
    valid: float = 0.0
    """The reward of an episode without an invalid action."""
    invalid: float = -0.1
    """The reward of each invalid action."""

    def build(self) -> RewardFunction:
        """The reward function."""
        return format_reward(valid=self.valid, invalid=self.invalid)


class TurnPenaltySettings(_Settings):
    """Against wasted turns: see `turn_penalty`."""

    type: Literal["turns"]
    per_turn: float = -0.01
    """The reward of each message beyond the free ones."""
    free_turns: int = Field(default=0, ge=0)
    """Messages that cost nothing."""

    def build(self) -> RewardFunction:
        """The reward function."""
        return turn_penalty(per_turn=self.per_turn, free_turns=self.free_turns)


class LengthRewardSettings(_Settings):
    """Against long answers: see `length_reward`."""

    type: Literal["length"]
    max_tokens: int = Field(ge=1)
    """Tokens of the model from which the full price is due."""
    free_tokens: int | None = Field(default=None, ge=0)
    """Tokens that cost nothing; three quarters of ``max_tokens`` if None."""
    too_long: float = -1.0
    """The reward at ``max_tokens``."""

    def build(self) -> RewardFunction:
        """The reward function."""
        return length_reward(max_tokens=self.max_tokens, free_tokens=self.free_tokens, too_long=self.too_long)


class JudgeRewardSettings(JudgeSettings):
    """A language model's judgement: see `JudgeReward`."""

    type: Literal["judge"]
    criteria: dict[str, str] = Field(min_length=1)
    """What to grade, by name."""
    weight: float = 1.0
    """What its value is multiplied by in the sum of all rewards."""

    def build(self) -> RewardFunction:
        """The reward function."""
        asked = self.model_dump(include=set(JudgeSettings.model_fields))
        return JudgeReward(JudgeSettings(**asked), self.criteria)


class FunctionRewardSettings(_Settings):
    """A function of yours, from a trajectory to a number or None."""

    type: Literal["function"]
    function: str
    """``module:name``; the module is looked for in the working directory too. It may also be a `RewardFunction`."""

    def build(self) -> RewardFunction:
        """The reward function."""
        found = _import(self.function)
        return found if isinstance(found, RewardFunction) else RewardFunction(found.__name__, found)


class GateSettings(_Settings):
    """A reward behind a condition: see `gate`."""

    type: Literal["gate"]
    condition: RewardSettings
    """Opens the gate."""
    reward: RewardSettings
    """What counts where it is open."""
    at_least: float = 1.0
    """The value of the condition from which the gate is open."""
    otherwise: float = 0.0
    """The reward where it is shut."""

    def build(self) -> RewardFunction:
        """The reward function."""
        return gate(self.condition.build(), self.reward.build(), at_least=self.at_least, otherwise=self.otherwise)


class ByEnvironmentSettings(_Settings):
    """A list of rewards for each environment of a mixed run: see `by_environment`."""

    type: Literal["by_environment"]
    rewards: dict[str, list[RewardSettings]] = Field(min_length=1)
    """By the environment's name."""

    def build(self) -> RewardFunction:
        """The reward function."""
        return by_environment({name: _sum(settings) for name, settings in self.rewards.items()})


RewardSettings = Annotated[
    EnvironmentRewardSettings
    | DiscountedRewardSettings
    | FormatRewardSettings
    | TurnPenaltySettings
    | LengthRewardSettings
    | JudgeRewardSettings
    | FunctionRewardSettings
    | GateSettings
    | ByEnvironmentSettings,
    Field(discriminator="type"),
]
"""One entry of ``rewards``, told apart by its ``type``."""

GateSettings.model_rebuild()
ByEnvironmentSettings.model_rebuild()


def reward_from_settings(settings: Sequence[Any]) -> RewardFunction:
    """The reward function that a list of entries describes: their weighted sum, None where any of them is None.

    Args:
        settings: Dicts as they stand in the YAML file.

    Raises:
        ConfigurationError: The list is empty, or an entry cannot be used; the message names it.
    """
    # Also what a YAML file gives in place of a list.
    if isinstance(settings, Mapping | str) or not isinstance(settings, Sequence):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigurationError(
            f"rewards is a list of entries, and {settings!r:.60} is none: write [{{type: environment}}], say. See "
            "docs/rewards.md."
        )
    if not settings:
        raise ConfigurationError("rewards is empty: give at least one, such as {type: environment}.")
    try:
        entries: list[Any] = TypeAdapter(list[RewardSettings]).validate_python(list(settings))
    except ValidationError as error:
        wrong = problems(error, list[RewardSettings], "rewards")
        raise ConfigurationError(f"rewards cannot be used: {wrong}. See docs/rewards.md.") from error
    return _sum(entries)


def _sum(entries: Sequence[Any]) -> RewardFunction:
    if len(entries) == 1 and entries[0].weight == 1.0:
        return entries[0].build()
    return compose([each.build() for each in entries], [each.weight for each in entries], name="reward")


def _import(path: str) -> Any:
    module, _, name = path.partition(":")
    if not module or not name:
        raise ConfigurationError(f"rewards: function '{path}' must be written as 'module:name'.")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ConfigurationError(f"rewards: there is no function '{path}': {error}.") from error
    if not callable(found):
        raise ConfigurationError(f"rewards: '{path}' is no function but {type(found).__name__}.")
    return found
