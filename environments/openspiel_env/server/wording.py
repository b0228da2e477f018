"""A position in words, as its player sees it: what a language model reads.

Games that OpenSpiel draws as a picture, or writes for programs, have words of their own here, short and of one form,
so that a small model can learn from them. Every other game shows OpenSpiel's own text for the player.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from typing import Any

from openspiel_env.server.match import EarlyEnd, Match, Move
from openspiel_env.server.moves import FIXED_MOVES, MOVE_TOOLS, move_text

_MOST_PAIRS = 64


def message_of(match: Match, player: int, moves: Sequence[Move], max_listed_moves: int) -> str:
    """What a player is told of a match.

    Args:
        match: The match.
        player: The player.
        moves: What the others did since it was last told.
        max_listed_moves: How many legal moves are named at most, where they vary.

    Returns:
        The position and, where not all of the game's moves are always legal, the legal ones; or how the match ended.
    """
    name, state = match.game.name, match.state
    if match.early_end is not None:
        return _early_ending(match.early_end, player)
    if match.over:
        return _ENDINGS.get(name, _ending)(match, player)
    position = _POSITIONS[name](state, player) if name in _POSITIONS else _position(match, player, moves)
    legal = match.legal_actions(player)
    if name in MOVE_TOOLS and len(legal) == len(FIXED_MOVES[name]):
        return position
    return f"{position}\n{moves_in_words([move_text(name, state, player, each) for each in legal], max_listed_moves)}"


def moves_in_words(moves: Sequence[str], most: int) -> str:
    """The legal moves as a sentence; where there are more than ``most``, the first of them and how many more."""
    rest = f", and {len(moves) - most} more" if len(moves) > most else ""
    return f"Your moves: {', '.join(moves[:most])}{rest}."


def _position(match: Match, player: int, moves: Sequence[Move]) -> str:
    state, rules = match.state, match.game.rules
    kind = rules.get_type()
    text = ""
    if kind.information == type(kind).Information.ONE_SHOT:
        text = _scores_of_pairs(match, player)
    elif kind.provides_observation_string:
        text = state.observation_string(player)
    elif kind.provides_information_state_string:
        text = state.information_state_string(player)
    elif kind.information == type(kind).Information.PERFECT_INFORMATION:
        text = str(state)
    lines = [f"You are player {player}."] if match.game.players > 1 else []
    if moves:
        lines.append(f"Since your last move: {', '.join(f'player {each.player} {each.text}' for each in moves)}.")
    lines.append(text.strip())
    if state.is_simultaneous_node() and match.game.players > 1:
        lines.append("All players choose at the same time.")
    return "\n".join(filter(None, lines))


def _scores_of_pairs(match: Match, player: int) -> str:
    """What each pair of moves would earn, where two players choose once."""
    state = match.state
    legal = [state.legal_actions(each) for each in range(match.game.players)]
    if len(legal) != 2 or len(legal[0]) * len(legal[1]) > _MOST_PAIRS:
        return ""
    lines: list[str] = []
    for own in legal[player]:
        scores: list[str] = []
        for other in legal[1 - player]:
            played = state.clone()
            played.apply_actions([own, other] if player == 0 else [other, own])
            text = move_text(match.game.name, state, 1 - player, other)
            scores.append(f"{played.returns()[player]:g} against {text}")
        lines.append(f"{move_text(match.game.name, state, player, own)} earns {', '.join(scores)}.")
    return "\n".join(lines)


def _ending(match: Match, player: int) -> str:
    returns = match.returns()
    own = returns[player]
    if len(returns) == 1:
        return f"The game is over. Your score: {own:g}."
    best = max(score for each, score in enumerate(returns) if each != player)
    outcome = "You win." if own > best else "You lose." if own < best else "It is a draw."
    scores = ", ".join(f"player {each} {score:g}" for each, score in enumerate(returns))
    return f"The game is over. {outcome} Scores: {scores}."


def _early_ending(end: EarlyEnd, player: int) -> str:
    if end.kind == "illegal_move":
        if end.player == player:
            return "That move is illegal. You lose."
        return f"Player {end.player} made an illegal move and loses."
    who = "You" if end.player == player else f"Player {end.player}"
    why = {
        "left": f"{who} left it",
        "turn_timeout": f"{who} did not move in time",
        "policy_failed": f"Player {end.player}'s policy failed",
    }
    if end.loses:
        loses = "You lose" if end.player == player else f"Player {end.player} loses"
        return f"The match has ended: {why[end.kind]}. {loses}."
    return f"The match has ended without a result: {why[end.kind]}."


def _catch(state: Any, player: int) -> str:
    rows = state.observation_string(player).split()
    row = next(index for index, cells in enumerate(rows) if "o" in cells)
    return f"Ball column {rows[row].index('o')}, row {row}. Paddle column {rows[-1].index('x')}."


def _catch_ending(match: Match, player: int) -> str:
    return "You caught the ball." if match.state.returns()[player] > 0 else "You missed the ball."


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


_LEDUC_CARDS = ("jack", "queen", "king")
_LEDUC_MOVES = ("fold", "call", "raise")


def _leduc_poker(state: Any, player: int) -> str:
    # Such as "[Observer: 0][Private: 1][Round 2][Player: 0][Pot: 4][Money: 98 98][Public: 3][Round1: 1 1][Round2: 1]".
    known = dict(re.findall(r"\[(\w+):? ?([^\]]*)\]", state.information_state_string(player)))
    ranks = state.num_players() + 1

    def card(text: str) -> str:
        rank = int(text) // 2
        return _LEDUC_CARDS[rank] if ranks == len(_LEDUC_CARDS) else f"{rank} of 0 to {ranks - 1}"

    rounds = [
        f"{which} round: {', '.join(_LEDUC_MOVES[int(move)] for move in known[name].split()) or 'nothing'}"
        for which, name in itertools.islice((("First", "Round1"), ("Second", "Round2")), int(known["Round"]))
    ]
    public = f" The open card: {card(known['Public'])}." if "Public" in known else ""
    money = known["Money"].split()[player]
    return f"Your card: {card(known['Private'])}.{public} {'. '.join(rounds)}. Pot {known['Pot']}, your money {money}."


def _connect_four(state: Any, player: int) -> str:
    return f"You are {'xo'[player]}.\n{str(state).strip()}"


def _tic_tac_toe(state: Any, player: int) -> str:
    return f"You are {'xo'[player]}.\n{state.observation_string(player)}"


_POSITIONS: dict[str, Callable[[Any, int], str]] = {
    "2048": _2048,
    "blackjack": _blackjack,
    "catch": _catch,
    "cliff_walking": _cliff_walking,
    "connect_four": _connect_four,
    "kuhn_poker": _kuhn_poker,
    "leduc_poker": _leduc_poker,
    "tic_tac_toe": _tic_tac_toe,
}

_ENDINGS: dict[str, Callable[[Match, int], str]] = {"catch": _catch_ending}
