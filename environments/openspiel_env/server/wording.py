"""A position in words, as its player sees it: what a language model reads.

Games that OpenSpiel draws as a picture, or writes for programs, have words of their own here, short and of one form,
so that a small model can learn from them. Every other game shows OpenSpiel's own text for the player.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from openspiel_env.server.match import Match
from openspiel_env.server.moves import FIXED_MOVES, MOVE_TOOLS, move_text


def message_of(match: Match, max_listed_moves: int) -> str:
    """What the agent is told of a match.

    Args:
        match: The match.
        max_listed_moves: How many legal moves are named at most, where they vary.

    Returns:
        The position and, where not all of the game's moves are always legal, the legal ones; or how the match ended.
    """
    name = match.game.name
    if match.over:
        return _ENDINGS.get(name, _ending)(match) if not match.forfeited else "That move is illegal. You lose."
    position = _POSITIONS.get(name, _position)(match.state, match.agent)
    legal = match.legal_actions()
    if name in MOVE_TOOLS and len(legal) == len(FIXED_MOVES[name]):
        return position
    return f"{position}\n{moves_in_words([move_text(name, match.state, action) for action in legal], max_listed_moves)}"


def moves_in_words(moves: Sequence[str], most: int) -> str:
    """The legal moves as a sentence; where there are more than ``most``, the first of them and how many more."""
    rest = f", and {len(moves) - most} more" if len(moves) > most else ""
    return f"Your moves: {', '.join(moves[:most])}{rest}."


def _position(state: Any, player: int) -> str:
    rules = state.get_game()
    kind = rules.get_type()
    text = ""
    if kind.provides_observation_string:
        text = state.observation_string(player)
    elif kind.provides_information_state_string:
        text = state.information_state_string(player)
    elif kind.information == type(kind).Information.PERFECT_INFORMATION:
        text = str(state)
    who = f"You are player {player}.\n" if rules.num_players() > 1 else ""
    return f"{who}{text.strip()}".strip()


def _ending(match: Match) -> str:
    returns = match.state.returns()
    own = returns[match.agent]
    if len(returns) == 1:
        return f"The game is over. Your score: {own:g}."
    best = max(score for player, score in enumerate(returns) if player != match.agent)
    outcome = "You win." if own > best else "You lose." if own < best else "It is a draw."
    scores = ", ".join(f"player {player} {score:g}" for player, score in enumerate(returns))
    return f"The game is over. {outcome} Scores: {scores}."


def _catch(state: Any, player: int) -> str:
    rows = state.observation_string(player).split()
    row = next(index for index, cells in enumerate(rows) if "o" in cells)
    return f"Ball column {rows[row].index('o')}, row {row}. Paddle column {rows[-1].index('x')}."


def _catch_ending(match: Match) -> str:
    return "You caught the ball." if match.state.returns()[0] > 0 else "You missed the ball."


def _cliff_walking(state: Any, player: int) -> str:
    rows = state.observation_string(player).split()
    row = next(index for index, cells in enumerate(rows) if "P" in cells)
    last, width = len(rows) - 1, len(rows[0])
    return (
        f"You are in row {row}, column {rows[row].index('P')}. The goal is row {last}, column {width - 1}. "
        f"The cliff is row {last}, columns 1 to {width - 2}."
    )


def _2048(state: Any, player: int) -> str:
    rows = state.observation_string(player).strip().split("\n")
    return "\n".join(" ".join(row.split()) for row in rows)


_RANKS = {"A": "ace", "T": "10", "J": "jack", "Q": "queen", "K": "king"}


def _blackjack(state: Any, player: int) -> str:
    lines: list[str] = [line for line in state.observation_string(player).split("\n") if "Cards: " in line]
    own, dealer = (
        [_RANKS.get(card[1:], card[1:]) for card in line.partition("Cards: ")[2].split() if card != "??"]
        for line in lines
    )
    return f"Your hand: {', '.join(own)}. The dealer shows {', '.join(dealer)}."


def _kuhn_poker(state: Any, player: int) -> str:
    known = state.information_state_string(player)
    card = known.rstrip("pb")
    moves = ["pass" if move == "p" else "bet" for move in known[len(card) :]]
    return f"Your card: {card} of 0 to {state.num_players()}. So far: {', '.join(moves) or 'nothing'}."


def _tic_tac_toe(state: Any, player: int) -> str:
    return f"You are {'xo'[player]}.\n{state.observation_string(player)}"


_POSITIONS: dict[str, Callable[[Any, int], str]] = {
    "2048": _2048,
    "blackjack": _blackjack,
    "catch": _catch,
    "cliff_walking": _cliff_walking,
    "kuhn_poker": _kuhn_poker,
    "tic_tac_toe": _tic_tac_toe,
}

_ENDINGS: dict[str, Callable[[Match], str]] = {"catch": _catch_ending}
