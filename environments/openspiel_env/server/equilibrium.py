"""The policy ``cfr``: an average policy of counterfactual regret minimisation, computed once for a game.

In a two-player zero-sum game it comes close to an equilibrium, which nobody beats in the long run; with more players it
is a strong policy without that promise. It chooses by what its player knows, and nothing else.

Source: O. Tammelin, "Solving Large Imperfect Information Games Using CFR+", 2014; OpenSpiel's ``CFRPlusSolver``.
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

MOST_HISTORIES = 100_000
"""Histories of a game that is solved: an iteration visits each of them, in tens of milliseconds."""


def equilibrium_policy(game: Game, iterations: int) -> Policy:
    """The average policy of so many iterations.

    Raises:
        ConfigurationError: The game does not say what a player knows, or draws its own chance.
    """
    kind = game.rules.get_type()
    if not kind.provides_information_state_string or game.needs_seed:
        raise ConfigurationError(
            f"'cfr' needs a game that tells what a player knows in words and whose chance is in the open, and "
            f"'{game.name}' is none. Choose another opponent_policy, such as random."
        )
    return _solver(str(game.rules), iterations)


class _Equilibrium(Policy):
    """One game's average policy, shared by all sessions."""

    def __init__(self, rules: Any, iterations: int) -> None:
        super().__init__(self._draw, blocks=True)
        self._simultaneous = rules.get_type().dynamics == pyspiel.GameType.Dynamics.SIMULTANEOUS
        self._rules = pyspiel.convert_to_turn_based(rules) if self._simultaneous else rules
        self._iterations = iterations
        self._shares: dict[str, list[tuple[int, float]]] | None = None
        self._lock = threading.Lock()

    @property
    def blocks(self) -> bool:
        return self._shares is None

    def prepare(self) -> None:
        with self._lock:
            if self._shares is None:
                self._check_size()
                solver = pyspiel.CFRPlusSolver(self._rules)
                for _ in range(self._iterations):
                    solver.evaluate_and_update_policy()
                self._shares = solver.tabular_average_policy().policy_table()

    def _check_size(self) -> None:
        left = [self._rules.new_initial_state()]
        for _ in range(MOST_HISTORIES):
            if not left:
                return
            state = left.pop()
            if not state.is_terminal():
                left.extend(state.child(action) for action in state.legal_actions())
        raise ConfigurationError(
            f"'{self._rules}' has more than {MOST_HISTORIES} histories: too many for 'cfr'. Choose another "
            "opponent_policy, such as random, or smaller game_params."
        )

    def _draw(self, state: Any, player: int, generator: random.Random) -> int:
        self.prepare()
        assert self._shares is not None
        known = self._in_turns(state, player) if self._simultaneous else state
        shares = self._shares.get(known.information_state_string(player)) or [(a, 1.0) for a in state.legal_actions()]
        left = generator.random() * sum(share for _, share in shares)
        for action, share in shares:
            left -= share
            if left < 0:
                return action
        return shares[-1][0]  # what is left is a rounding error

    def _in_turns(self, state: Any, player: int) -> Any:
        """The same position in the game in turns, where the player's own turn comes."""
        turns = self._rules.new_initial_state()
        for action in state.history():
            turns.apply_action(action)
        while turns.current_player() != player:
            turns.apply_action(turns.legal_actions()[0])  # of which the player knows nothing
        return turns


@functools.lru_cache(maxsize=64)
def _solver(rules: str, iterations: int) -> _Equilibrium:
    return _Equilibrium(pyspiel.load_game(rules), iterations)
