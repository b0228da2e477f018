"""What is played, and how: the settings of a server, and of a single episode."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from openenv_trl.errors import ConfigurationError
from openspiel_env.server.opponents import OpponentName


class MatchSettings(BaseModel):
    """How a game is played; ``reset`` may change each of them for one episode."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    game_params: dict[str, Any] = Field(default_factory=dict)
    """The game's parameters, such as ``{"rows": 5}``; OpenSpiel's defaults for those not given, or None."""
    agent_player: int = Field(default=0, ge=0)
    """Which player the agent is, from 0. The first, since games of one player have no other."""
    opponent_policy: OpponentName = "random"
    """How the others move: "random", or the "first", "last" or "middle" of the legal moves. Random, so that no single
    line of play wins."""
    illegal_moves: Literal["error", "loss"] = "error"
    """What an illegal move does. "error": nothing, and the agent is told what is legal. "loss": the game ends, and its
    return is the least that the game has. An error by default, since a lost game hides a misspelt move."""
    max_listed_moves: int = Field(default=100, ge=1)
    """Legal moves that a message names at most. So many, that chess has all of its usual positions' and the board game
    go does not fill a model's context."""

    @field_validator("game_params")
    @classmethod
    def _without_none(cls, parameters: dict[str, Any]) -> dict[str, Any]:
        # A data set's column of dicts has all keys in every row.
        return {name: value for name, value in parameters.items() if value is not None}


ENVIRONMENT_VARIABLES = {
    "OPENSPIEL_GAME_PARAMS": "game_params",
    "OPENSPIEL_AGENT_PLAYER": "agent_player",
    "OPENSPIEL_OPPONENT_POLICY": "opponent_policy",
    "OPENSPIEL_ILLEGAL_MOVES": "illegal_moves",
    "OPENSPIEL_MAX_LISTED_MOVES": "max_listed_moves",
}
"""Which of the operating system's environment variables gives which setting; the first one as JSON."""


def settings_from(values: Mapping[str, Any], base: MatchSettings | None = None) -> MatchSettings:
    """Settings from their values by name.

    Args:
        values: The values; None leaves a setting as it is in ``base``.
        base: The settings to start from; the defaults if None.

    Raises:
        ConfigurationError: A value that cannot be used; the message names the setting.
    """
    given = {name: value for name, value in values.items() if value is not None}
    if base is not None:
        if not given:
            return base
        given = {**base.model_dump(), **given}
    try:
        return MatchSettings.model_validate(given)
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
        raise ConfigurationError(f"The OpenSpiel environment's settings cannot be used: {wrong}.") from error


def settings_from_variables(variables: Mapping[str, str]) -> MatchSettings:
    """The settings that environment variables give (`ENVIRONMENT_VARIABLES`).

    Raises:
        ConfigurationError: A value that cannot be used; the message names the setting.
    """
    values: dict[str, Any] = {
        setting: variables[name] for name, setting in ENVIRONMENT_VARIABLES.items() if variables.get(name)
    }
    if "game_params" in values:
        try:
            values["game_params"] = json.loads(values["game_params"])
        except json.JSONDecodeError as error:
            raise ConfigurationError(
                f"OPENSPIEL_GAME_PARAMS must be a JSON object such as '{{\"rows\": 5}}': {error}."
            ) from error
    return settings_from(values)
