"""What the moves of a game are called, and how the text of a move is read.

Some games have few moves that never change; OpenSpiel calls them by number, and here they have words. All others
have OpenSpiel's own text for a move, such as "e4", without the mark of its player ("[P0]") that some put before it.
"""

from __future__ import annotations

import functools
import random
import re
import time
from collections.abc import Iterator
from typing import Any

import pyspiel

from openspiel_env.server.games import Game

MOST_LISTED_IN_A_SCHEMA = 64
"""Moves that a tool's schema lists: what a model reads of a tool stays short."""
_SAMPLED_POSITIONS = 3000
_SAMPLING_S = 3.0  # usual are 0.1; some games compute for seconds in a move
_PLAYER_MARK = re.compile(r"^(\[P\d+\]|p\d+:|Player \d+ |player=\d+ move=)")

_SQUARES = ("top left", "top", "top right", "left", "centre", "right", "bottom left", "bottom", "bottom right")

FIXED_MOVES: dict[str, tuple[str, ...]] = {
    "2048": ("up", "right", "down", "left"),
    "blackjack": ("hit", "stand"),
    "catch": ("left", "stay", "right"),
    "cliff_walking": ("right", "up", "left", "down"),
    "kuhn_poker": ("pass", "bet"),
    "leduc_poker": ("fold", "call", "raise"),
    "tic_tac_toe": _SQUARES,
}
"""For games whose moves never change: the words for moves number 0, 1, ..."""

MOVE_TOOLS: dict[str, dict[str, str]] = {
    "2048": {
        "up": "Slide all tiles up.",
        "right": "Slide all tiles to the right.",
        "down": "Slide all tiles down.",
        "left": "Slide all tiles to the left.",
    },
    "blackjack": {
        "hit": "Draw one more card. Above 21 you are bust and lose.",
        "stand": "Draw no more cards. The dealer then plays, and the higher sum wins.",
    },
    "catch": {
        "left": "Move the paddle one column to the left, to the smaller number.",
        "stay": "Leave the paddle where it is.",
        "right": "Move the paddle one column to the right, to the larger number.",
    },
    "cliff_walking": {
        "right": "Walk one column to the right.",
        "up": "Walk one row up.",
        "left": "Walk one column to the left.",
        "down": "Walk one row down.",
    },
    "kuhn_poker": {
        "pass": "Pass; after a bet, fold.",
        "bet": "Bet one chip; after a bet, call it.",
    },
    "leduc_poker": {
        "fold": "Give up the hand.",
        "call": "Call the bet; check where there is none.",
        "raise": "Raise the bet.",
    },
}
"""For games with a tool for each move: the tools' descriptions, by the move's word."""


def move_text(game_name: str, state: Any, player: int, action: int) -> str:
    """What a move of a player is called here."""
    if game_name in FIXED_MOVES:
        return FIXED_MOVES[game_name][action]
    if game_name == "connect_four":
        return f"column {action}"
    return _PLAYER_MARK.sub("", state.action_to_string(player, action))


def listed_moves(game: Game) -> tuple[str, ...] | None:
    """The texts of all moves of a game, for a tool's schema; None where they are many, or depend on the position.

    Whether they depend on it is found out by play: in some thousand positions of random matches each move must have
    been legal, and have been called the same each time. Where players have texts of their own, all players' are listed.
    """
    if game.rules.num_distinct_actions() > MOST_LISTED_IN_A_SCHEMA:
        return None
    return FIXED_MOVES[game.name] if game.name in FIXED_MOVES else _found_moves(game.name, str(game.rules))


@functools.lru_cache(maxsize=256)
def _found_moves(name: str, rules: str) -> tuple[str, ...] | None:
    game = pyspiel.load_game(rules)
    # Only of moves that are legal: some games have no text for others, and one ends the process.
    texts: dict[tuple[int, int], str] = {}
    until = time.monotonic() + _SAMPLING_S
    for state, player, action in _sampled_choices(game):
        if time.monotonic() > until:
            return None
        text = move_text(name, state, player, action)
        if texts.setdefault((player, action), text) != text:
            return None
    if {action for _, action in texts} != set(range(game.num_distinct_actions())):
        return None
    for player in range(game.num_players()):
        own = [" ".join(text.split()).casefold() for (each, _), text in texts.items() if each == player]
        if len(set(own)) != len(own):
            return None
    return tuple(dict.fromkeys(texts[key] for key in sorted(texts)))


def _sampled_choices(game: Any) -> Iterator[tuple[Any, int, int]]:
    """Positions of random matches, each with every legal move of every player who is to choose."""
    generator = random.Random(0)
    state = game.new_initial_state()
    for _ in range(_SAMPLED_POSITIONS):
        if state.is_terminal():
            state = game.new_initial_state()
        if state.is_chance_node():
            actions, shares = zip(*state.chance_outcomes(), strict=True)
            state.apply_action(generator.choices(actions, shares)[0])
            continue
        simultaneous = state.is_simultaneous_node()
        players = range(game.num_players()) if simultaneous else [state.current_player()]
        legal = {player: state.legal_actions(player) for player in players}
        for player, actions in legal.items():
            for action in actions:
                yield state, player, action
        chosen = [generator.choice(actions) if actions else 0 for actions in legal.values()]
        if simultaneous:
            state.apply_actions(chosen)
        else:
            state.apply_action(chosen[0])


def fixed_move_id(game_name: str, word: str) -> int:
    """The number of a move that has a word of its own."""
    return FIXED_MOVES[game_name].index(word)


def read_move(text: str, moves: dict[int, str]) -> int | None:
    """The number of the move that a text names.

    The text may differ from the move's in case and in spaces around it. A number that is no move's text names the
    move by its number.

    Args:
        text: What the model wrote.
        moves: The legal moves: their texts by number.

    Returns:
        The move's number; None where no legal move, or more than one, is called so.
    """
    for normal in (str, _loosely):
        wanted = normal(text)
        named = [action for action, name in moves.items() if normal(name) == wanted]
        if named:
            return named[0] if len(named) == 1 else None
    number = text.strip()
    # isdecimal() alone takes other scripts' digits too, and int() would read them.
    return int(number) if number.isascii() and number.isdecimal() and int(number) in moves else None


def _loosely(text: str) -> str:
    return " ".join(text.split()).casefold()
