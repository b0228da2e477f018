"""Loading OpenSpiel's games: by name and parameters, with errors that say what to change.

A game object is the rules only, is never changed, and is shared by all sessions; the positions are the matches'.
"""

from __future__ import annotations

import difflib
import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyspiel

from openenv_trl.errors import ConfigurationError

# Of games with hidden information, those in which everyone sees what everyone does.
_PUBLIC_MOVES = frozenset({"blackjack", "kuhn_poker", "leduc_poker", "liars_dice", "universal_poker"})


@dataclass(frozen=True)
class Game:
    """The rules of one game.

    Attributes:
        name: OpenSpiel's name, without parameters.
        rules: OpenSpiel's game.
        players: How many play it.
        simultaneous: Whether there are positions in which its players choose at the same time.
        moves_are_public: Whether every player sees every move.
        tensor: Which tensor a player's view is: "information_state", "observation" or "".
        needs_seed: Whether the game draws from a generator of its own, to be seeded for each match.
    """

    name: str
    rules: Any
    players: int
    simultaneous: bool
    moves_are_public: bool
    tensor: str
    needs_seed: bool


def load(name: str, parameters: Mapping[str, Any]) -> Game:
    """Load a game.

    Args:
        name: A name that OpenSpiel has registered, such as "catch"; with parameters in OpenSpiel's own form, as in
            "misere(game=tic_tac_toe())", where ``parameters`` is empty.
        parameters: The game's parameters, such as ``{"rows": 5, "columns": 3}``. A parameter that is itself a game is
            written as text in the name.

    Raises:
        ConfigurationError: There is no such game, it has no such parameter or lacks one, or it cannot be played here.
    """
    return _load(name, json.dumps(dict(parameters), sort_keys=True))


def require_player(game: Game, player: int) -> None:
    """Check that the game has this player.

    Raises:
        ConfigurationError: It has not.
    """
    if player >= game.players:
        raise ConfigurationError(f"agent_player={player}: '{game.name}' has {game.players} player(s), counted from 0.")


def short_name(name: str) -> str:
    """The game's name without the parameters that may be written after it."""
    return name.partition("(")[0].strip()


def seeded(game: Game, seed: int) -> Game:
    """The same rules, drawing from a generator of their own with this seed."""
    parameters: dict[str, Any] = {**game.rules.get_parameters(), "rng_seed": seed % 2**31}
    return _described(game.name, pyspiel.load_game(game.name, parameters), seedable=True)


@functools.lru_cache(maxsize=256)
def _load(name: str, parameters: str) -> Game:
    short = short_name(name)
    if short not in pyspiel.registered_names():
        close = difflib.get_close_matches(short, pyspiel.registered_names(), n=3)
        guess = f" Is one of these meant: {', '.join(close)}?" if close else ""
        raise ConfigurationError(
            f"OpenSpiel has no game '{short}'.{guess} `python -c 'import pyspiel; print(pyspiel.registered_names())'` "
            "lists all."
        )
    given: dict[str, Any] = json.loads(parameters)
    try:
        rules = pyspiel.load_game(name, given) if given else pyspiel.load_game(name)
    except (pyspiel.SpielError, LookupError, TypeError) as error:  # some loaders check nothing before they look
        raise ConfigurationError(
            f"OpenSpiel cannot load the game '{name}' with the parameters {given}: {error}. "
            f"Its parameters are: {', '.join(_specified(short)) or 'none'}."
        ) from error
    return _described(short, rules, seedable="rng_seed" in rules.get_parameters() or "rng_seed" in _specified(short))


def _described(name: str, rules: Any, *, seedable: bool) -> Game:
    kind = rules.get_type()
    dynamics = pyspiel.GameType.Dynamics
    if kind.dynamics == dynamics.MEAN_FIELD:
        raise ConfigurationError(
            f"'{name}' is a mean field game: its crowd is no player that moves. Choose a game of players."
        )
    if kind.action_structs_only:
        raise ConfigurationError(f"The moves of '{name}' have no numbers, only parts: it cannot be played here.")
    draws_itself = kind.chance_mode == pyspiel.GameType.ChanceMode.SAMPLED_STOCHASTIC
    if draws_itself and not seedable:
        raise ConfigurationError(
            f"'{name}' draws its own chance and takes no seed (rng_seed): its episodes could not be played again. "
            "Choose a game with explicit chance."
        )
    information = pyspiel.GameType.Information
    return Game(
        name=name,
        rules=rules,
        players=rules.num_players(),
        simultaneous=kind.dynamics == dynamics.SIMULTANEOUS,
        moves_are_public=name in _PUBLIC_MOVES or kind.information != information.IMPERFECT_INFORMATION,
        tensor=_tensor(rules),
        needs_seed=draws_itself,
    )


def _tensor(rules: Any) -> str:
    kind = rules.get_type()
    if kind.provides_information_state_tensor:
        return "information_state"
    if not kind.provides_observation_tensor:
        return ""
    try:
        rules.observation_tensor_shape()
    except pyspiel.SpielError:  # crossword says that it has one
        return ""
    return "observation"


def _specified(name: str) -> Mapping[str, Any]:
    for kind in pyspiel.registered_games():
        if kind.short_name == name:
            return kind.parameter_specification
    return {}
