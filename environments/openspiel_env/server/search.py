"""Policies that look ahead: ``mcts``, ``minimax`` and ``greedy``, for games in which everyone sees everything.

A look-ahead runs on the game's real state. In a game that hides something it would see what its player must not, so
there it is refused.

Source: OpenSpiel's ``MCTSBot`` for ``mcts``; C. Luckhardt and K. Irani, "An Algorithmic Solution of N-Person Games",
1986, for ``minimax`` with any number of players (each takes what is best for itself).
"""

from __future__ import annotations

import functools
import random
import threading
from typing import Any

import pyspiel

from openenv_trl.errors import ConfigurationError
from openspiel_env.server.games import Game
from openspiel_env.server.opponents import Policy

MOST_POSITIONS = 50_000
"""Positions of a game that ``minimax`` solves to its end: some seconds, once for a server."""
_EXPLORATION = 1.4  # the square root of two, as in OpenSpiel's own examples
_TREE_MB = 200
_EQUAL = 1e-9  # what two sums of the same values may differ by


def search_policy(name: str, number: int | None, game: Game) -> Policy:
    """The policy of that name for this game.

    Args:
        name: "mcts", "minimax" or "greedy".
        number: Simulations of ``mcts``; moves that ``minimax`` looks ahead, None to the game's end.
        game: The game.

    Raises:
        ConfigurationError: The game hides something, or its players move at the same time.
    """
    kind = game.rules.get_type()
    if game.simultaneous or kind.information != type(kind).Information.PERFECT_INFORMATION:
        raise ConfigurationError(
            f"'{name}' looks at the real position, and in '{game.name}' a player does not see all of it. Choose "
            "another opponent_policy, such as random, or cfr in a small game."
        )
    if name == "mcts":
        return _TreeSearch(game, number or 1)
    if name == "greedy":
        return Policy(functools.partial(_choose_ahead, 1), blocks=True)
    if number is not None:
        return Policy(functools.partial(_choose_ahead, number), blocks=True)
    return _solution(str(game.rules))


class _TreeSearch(Policy):
    """OpenSpiel's Monte Carlo tree search. It lets other threads run meanwhile."""

    def __init__(self, game: Game, simulations: int) -> None:
        kind = game.rules.get_type()
        if kind.reward_model != type(kind).RewardModel.TERMINAL:
            raise ConfigurationError(
                f"'mcts' needs a game that is decided at its end, and '{game.name}' rewards moves. Choose 'greedy', or "
                "'minimax' with a number of moves to look ahead."
            )
        super().__init__(self._search, blocks=True)
        self._simulations = simulations

    def _search(self, state: Any, player: int, generator: random.Random) -> int:
        # A search of its own for each move: its tree knows nothing of the moves before, and so needs none replayed.
        seed = generator.getrandbits(31)
        evaluator = pyspiel.RandomRolloutEvaluator(1, seed)
        rules = state.get_game()
        bot = pyspiel.MCTSBot(rules, evaluator, _EXPLORATION, self._simulations, _TREE_MB, True, seed, False)
        return bot.step(state)


class _Solution(Policy):
    """All positions of a small game, valued once for all sessions."""

    def __init__(self, rules: Any) -> None:
        super().__init__(self._best, blocks=True)
        self._rules = rules
        self._values: dict[Any, tuple[float, ...]] = {}
        self._solved = False
        self._lock = threading.Lock()

    @property
    def blocks(self) -> bool:
        return not self._solved

    def prepare(self) -> None:
        with self._lock:
            if self._solved:
                return
            try:
                _values(self._rules.new_initial_state(), None, self._values)
            except (_TooManyPositionsError, RecursionError):
                self._values.clear()
                raise ConfigurationError(
                    f"'{self._rules}' has more than {MOST_POSITIONS} positions, or lasts too long, to be solved to its "
                    'end. Have minimax look some moves ahead ("minimax:4"), or choose mcts.'
                ) from None
            self._solved = True

    def _best(self, state: Any, player: int, generator: random.Random) -> int:
        self.prepare()
        return _choose(state, player, generator, None, self._values)


@functools.lru_cache(maxsize=64)
def _solution(rules: str) -> _Solution:
    return _Solution(pyspiel.load_game(rules))


class _TooManyPositionsError(Exception):
    """The table has as many positions as it may."""


def _choose_ahead(moves: int, state: Any, player: int, generator: random.Random) -> int:
    return _choose(state, player, generator, moves - 1, {})


def _choose(
    state: Any, player: int, generator: random.Random, moves: int | None, known: dict[Any, tuple[float, ...]]
) -> int:
    """One of the best moves, each equally likely."""
    values = {action: _values(state.child(action), moves, known)[player] for action in state.legal_actions()}
    best = max(values.values())
    equal = [action for action, value in values.items() if value > best - _EQUAL]
    return equal[int(generator.random() * len(equal))]


def _values(state: Any, moves: int | None, known: dict[Any, tuple[float, ...]]) -> tuple[float, ...]:
    """The returns that the players reach from here; those so far where no moves are left to look ahead.

    Positions of the same picture at the same move number count as one.
    """
    if state.is_terminal():
        return tuple(state.returns())
    key = (state.move_number(), state.current_player(), moves, str(state))
    if key in known:
        return known[key]
    if state.is_chance_node():
        outcomes = [(share, _values(state.child(action), moves, known)) for action, share in state.chance_outcomes()]
        found = tuple(sum(share * after[player] for share, after in outcomes) for player in range(state.num_players()))
    elif moves == 0:
        found = tuple(state.returns())
    else:
        left = None if moves is None else moves - 1
        player = state.current_player()
        found = max(
            (_values(state.child(action), left, known) for action in state.legal_actions()),
            key=lambda after: after[player],
        )
    if moves is None and len(known) >= MOST_POSITIONS:
        raise _TooManyPositionsError
    known[key] = found
    return found
