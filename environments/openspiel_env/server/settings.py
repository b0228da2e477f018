"""What is played, and how: the settings of a server, and of a single episode."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from openenv_trl.errors import ConfigurationError
from openspiel_env.server.opponents import COMPUTING, SESSION, SIMPLE, SeatPolicy, read_policies


class MatchSettings(BaseModel):
    """How a game is played; ``reset`` may change the first five of them for one episode."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    game_params: dict[str, Any] = Field(default_factory=dict)
    """The game's parameters, such as ``{"rows": 5}``; OpenSpiel's defaults for those not given, or None."""
    agent_player: int = Field(default=0, ge=0)
    """Which player the agent is, from 0. The first, since games of one player have no other."""
    opponent_policy: str = "random"
    """How the others move: a policy's name, or one for each player in order, with commas between; the agent's own is
    then not used. "random"; "first", "last" or "middle" of the legal moves; "greedy"; "mcts" or "mcts:50" with its
    simulations; "minimax" or "minimax:3" with the moves that it looks ahead; "cfr" or "cfr:500" with its iterations;
    the name of one of ``policies``; or "session" for another session of the server. Random, so that no single line of
    play wins."""
    illegal_moves: Literal["error", "loss"] = "error"
    """What an illegal move does. "error": nothing, and the agent is told what is legal. "loss": the game ends, and its
    return is the least that the game has. An error by default, since a lost game hides a misspelt move."""
    on_leave: Literal["truncate", "loss"] = "truncate"
    """How a match of several sessions ends when one leaves it, or does not move in time. "truncate": without a result,
    every return as it is then. "loss": that one loses, as by an illegal move. Truncated by default: a trainer's limits
    and failures end episodes too, and nobody has won by those."""
    max_listed_moves: int = Field(default=100, ge=1)
    """Legal moves that a message names at most. So many, that chess has all of its usual positions' and the board game
    go does not fill a model's context."""
    policies: dict[str, str] = Field(default_factory=dict)
    """Policies of your own: import paths "package.module:function" by the names that ``opponent_policy`` calls them
    by. Never from ``reset``, whose caller would then choose what code runs here."""
    max_policy_effort: int = Field(default=10_000, ge=1)
    """The largest number that ``opponent_policy`` may give a policy, as in "mcts:10000": some seconds of a processor,
    so that no client can ask for hours."""
    join_timeout_s: float = Field(default=50.0, gt=0)
    """Seconds that a session waits in ``reset`` for the other sessions of its match. A little less than the 60 that the
    rollout engine gives a reset."""
    turn_timeout_s: float = Field(default=50.0, gt=0)
    """Seconds that the sessions of a match wait for one move of another. A little less than the 60 that the rollout
    engine gives a step."""

    @field_validator("game_params")
    @classmethod
    def _without_none(cls, parameters: dict[str, Any]) -> dict[str, Any]:
        # A data set's column of dicts has all keys in every row.
        return {name: value for name, value in parameters.items() if value is not None}

    @field_validator("policies")
    @classmethod
    def _with_names_of_their_own(cls, policies: dict[str, str]) -> dict[str, str]:
        for name in policies:
            if name in SIMPLE or name in COMPUTING or name == SESSION or set(name) & set(",:") or name != name.strip():
                raise ValueError(f"'{name}' is taken, or has a comma, a colon or spaces around it")
        return policies

    @model_validator(mode="after")
    def _of_known_policies(self) -> MatchSettings:
        try:
            read_policies(self.opponent_policy, self.policies, self.max_policy_effort)
        except ValueError as error:
            raise ValueError(f"opponent_policy: {error}") from None
        return self

    def seats(self, players: int) -> tuple[SeatPolicy, ...]:
        """Who plays each player of a game; the agent's own seat is a session's.

        Raises:
            ConfigurationError: There are neither one policy nor as many as players.
        """
        named = read_policies(self.opponent_policy, self.policies, self.max_policy_effort)
        if len(named) not in (1, players):
            raise ConfigurationError(
                f"opponent_policy='{self.opponent_policy}' names {len(named)} policies, and the game has {players} "
                "player(s). Name one for all, or one for each player in order: the agent's own too, which is not used."
            )
        of_each = named * players if len(named) == 1 else named
        return tuple(SeatPolicy(SESSION) if each == self.agent_player else of_each[each] for each in range(players))


ENVIRONMENT_VARIABLES = {
    "OPENSPIEL_GAME_PARAMS": "game_params",
    "OPENSPIEL_AGENT_PLAYER": "agent_player",
    "OPENSPIEL_OPPONENT_POLICY": "opponent_policy",
    "OPENSPIEL_ILLEGAL_MOVES": "illegal_moves",
    "OPENSPIEL_ON_LEAVE": "on_leave",
    "OPENSPIEL_MAX_LISTED_MOVES": "max_listed_moves",
    "OPENSPIEL_POLICIES": "policies",
    "OPENSPIEL_MAX_POLICY_EFFORT": "max_policy_effort",
    "OPENSPIEL_JOIN_TIMEOUT_S": "join_timeout_s",
    "OPENSPIEL_TURN_TIMEOUT_S": "turn_timeout_s",
}
"""Which of the operating system's environment variables gives which setting."""
_JSON = {
    "OPENSPIEL_GAME_PARAMS": '{"rows": 5}',
    "OPENSPIEL_POLICIES": '{"expert": "my_package.policies:expert"}',
}
"""Those that are JSON objects, each with an example."""


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
        wrong = "; ".join(
            ": ".join(filter(None, [".".join(map(str, each["loc"])), each["msg"].removeprefix("Value error, ")]))
            for each in error.errors()
        )
        raise ConfigurationError(f"The OpenSpiel environment's settings cannot be used: {wrong}.") from error


def settings_from_variables(variables: Mapping[str, str]) -> MatchSettings:
    """The settings that environment variables give (`ENVIRONMENT_VARIABLES`).

    Raises:
        ConfigurationError: A value that cannot be used; the message names the setting.
    """
    values: dict[str, Any] = {
        setting: variables[name] for name, setting in ENVIRONMENT_VARIABLES.items() if variables.get(name)
    }
    for name, example in _JSON.items():
        setting = ENVIRONMENT_VARIABLES[name]
        if setting in values:
            try:
                values[setting] = json.loads(values[setting])
            except json.JSONDecodeError as error:
                raise ConfigurationError(f"{name} must be a JSON object such as '{example}': {error}.") from error
    return settings_from(values)
