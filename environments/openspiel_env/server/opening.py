"""How a match begins: the arguments of ``reset`` over the server's settings, checked before anything is changed."""

from __future__ import annotations

import os
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

from openenv_trl.errors import ConfigurationError
from openspiel_env.server import games
from openspiel_env.server.opponents import SESSION, Policy, policy_for
from openspiel_env.server.settings import MatchSettings, settings_from

_SETTINGS = ("game_params", "agent_player", "opponent_policy", "illegal_moves", "on_leave")
RESET_ARGUMENTS = ("seed", "episode_id", "task_seed", *_SETTINGS, "match")
"""What ``reset`` takes."""


@dataclass(frozen=True)
class Opening:
    """A match that can begin.

    Attributes:
        settings: How it is played.
        game: The rules.
        policies: Who plays the seats that no session takes.
        seed: The seed that was given, or None.
        task_seed: The task seed that was given, or None.
        match_name: The match's name where other sessions play in it, else None.
        terms: What the sessions of a match must have in common.
    """

    settings: MatchSettings
    game: games.Game
    policies: dict[int, Policy]
    seed: int | None
    task_seed: int | None
    match_name: str | None
    terms: Hashable

    @property
    def agent(self) -> int:
        """Which player the agent is."""
        return self.settings.agent_player

    def own_seed(self) -> int:
        """The seed that was given, else one of the operating system's entropy."""
        # 48 bits: every JSON reader holds them exactly.
        return int.from_bytes(os.urandom(6), "big") if self.seed is None else self.seed


def opening_of(name: str, arguments: Mapping[str, Any], defaults: MatchSettings) -> Opening:
    """How a match begins with these arguments of ``reset``.

    Args:
        name: OpenSpiel's name of the game.
        arguments: The arguments by name; None stands for one that was not given.
        defaults: The server's settings.

    Raises:
        ConfigurationError: An unknown argument, or a value that cannot be used.
    """
    unknown = sorted(arguments.keys() - set(RESET_ARGUMENTS))
    if unknown:
        raise ConfigurationError(
            f"The reset of OpenSpiel's games does not know {', '.join(map(repr, unknown))}. It takes "
            f"{', '.join(RESET_ARGUMENTS[:-1])} and {RESET_ARGUMENTS[-1]}."
        )
    for each in ("seed", "task_seed"):
        if arguments.get(each) is not None and not isinstance(arguments[each], int):
            raise ConfigurationError(f"{each} must be an integer or None, not {arguments[each]!r}.")
    settings = settings_from({each: arguments.get(each) for each in _SETTINGS}, defaults)
    game = games.load(name, settings.game_params)
    policies = policies_of(game, settings)
    seats = settings.seats(game.players)
    match_name = _match_name(arguments.get("match"), sum(seat.name == SESSION for seat in seats) - 1)
    return Opening(
        settings=settings,
        game=game,
        policies=policies,
        seed=arguments.get("seed"),
        task_seed=arguments.get("task_seed"),
        match_name=match_name,
        terms=(str(game.rules), settings.illegal_moves, settings.on_leave, seats),
    )


def policies_of(game: games.Game, settings: MatchSettings) -> dict[int, Policy]:
    """Who plays the seats that no session takes.

    Raises:
        ConfigurationError: The game has no such player, or a policy cannot play it.
    """
    games.require_player(game, settings.agent_player)
    seats = enumerate(settings.seats(game.players))
    return {player: policy_for(seat, game, settings.policies) for player, seat in seats if seat.name != SESSION}


def _match_name(given: Any, other_sessions: int) -> str | None:
    if given is None and not other_sessions:
        return None
    if not other_sessions:
        raise ConfigurationError(
            f"match={given!r} names a match with other sessions, and opponent_policy gives no player to one. Set "
            'opponent_policy="session", or a policy for each player in order, such as "session,session,random".'
        )
    if not isinstance(given, str) or not given:
        raise ConfigurationError(
            'opponent_policy="session" has another session of this server play: give match="NAME" to the reset of each '
            f"of them, and to each an agent_player of its own. match is {given!r}."
        )
    return given
