"""What the moves of a game are called, and how the text of a move is read.

Some games have few moves that never change; OpenSpiel calls them by number, and here they have words. All others
have OpenSpiel's own text for a move, such as "e4".
"""

from __future__ import annotations

from typing import Any

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


def move_text(game_name: str, state: Any, action: int) -> str:
    """What a move of the player who is to move is called."""
    fixed = FIXED_MOVES.get(game_name)
    return state.action_to_string(state.current_player(), action) if fixed is None else fixed[action]


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
