"""One match: a game from its first position to its end, in which the agent plays one player and the rest plays itself.

All that is random comes from two rows of draws. One decides what happens before the agent's first move (the cards, the
opponents' opening), the other all that follows; each depends on its seed alone. Nothing here waits or reads a clock.
"""

from __future__ import annotations

import random
from typing import Any

from openenv_trl.errors import ConfigurationError
from openspiel_env.server.games import Game, seeded
from openspiel_env.server.opponents import OPPONENTS, OpponentName

_MOST_DEALS = 1000


class Match:
    """A match in progress: it always stands where the agent is to move, or at the game's end.

    A match that ends before the agent has moved at all is dealt again, from the same row of draws: an episode without a
    decision teaches nothing.

    Args:
        game: The rules.
        agent: Which player the agent is.
        opponent: How the others move.
        seed: Decides all that is random.
        task_seed: Where given, decides what is random before the agent's first move, in ``seed``'s place.

    Raises:
        ConfigurationError: The agent's player is never to move.
    """

    def __init__(self, game: Game, agent: int, opponent: OpponentName, seed: int, task_seed: int | None = None) -> None:
        self.game = seeded(game, seed) if game.needs_seed else game
        self.agent = agent
        self.opponent_last_action: int | None = None
        self._choose = OPPONENTS[opponent]
        self._forfeited = False
        self._rewarded = 0.0
        self._held: int | None = None
        self._draws = random.Random(f"opening {seed if task_seed is None else task_seed}")
        for _ in range(_MOST_DEALS):
            self.state: Any = self.game.rules.new_initial_state()
            self.opponent_last_action = self._held = None
            self._play_the_others()
            if not self.state.is_terminal():
                break
        else:
            raise ConfigurationError(
                f"Player {agent} was not once to move in {_MOST_DEALS} matches of '{game.name}'. Choose another "
                "agent_player."
            )
        self._draws = random.Random(f"later {seed}")

    @property
    def over(self) -> bool:
        """Whether the match has ended."""
        return self._forfeited or self.state.is_terminal()

    @property
    def forfeited(self) -> bool:
        """Whether it ended with an illegal move."""
        return self._forfeited

    def legal_actions(self) -> list[int]:
        """The agent's legal moves, in rising order; none once the match is over."""
        return [] if self.over else self.state.legal_actions()

    def play(self, action: int) -> float:
        """Make the agent's move and let the others answer.

        Args:
            action: One of `legal_actions`.

        Returns:
            What the agent's player has won since its last move. All rewards of a match add up to OpenSpiel's return.
        """
        self.state.apply_action(action)
        if self._held is not None:
            self.opponent_last_action, self._held = self._held, None
        self._play_the_others()
        return self._reward()

    def forfeit(self) -> float:
        """End the match as lost: the agent's return is the least that the game has."""
        self._forfeited = True
        return self.game.rules.min_utility() - self._rewarded

    def view(self) -> list[float]:
        """The tensor of what the agent's player knows."""
        if self.game.tensor == "information_state":
            return self.state.information_state_tensor(self.agent)
        return self.state.observation_tensor(self.agent) if self.game.tensor else []

    def _reward(self) -> float:
        total = float(self.state.returns()[self.agent])
        reward, self._rewarded = total - self._rewarded, total
        return reward

    def _play_the_others(self) -> None:
        state = self.state
        while not state.is_terminal():
            if state.is_chance_node():
                state.apply_action(self._drawn(state.chance_outcomes()))
                continue
            player = state.current_player()
            if player == self.agent:
                return
            action = self._choose(state.legal_actions(), self._draws)
            state.apply_action(action)
            if not self.game.moves_are_public:
                continue
            if self.game.was_simultaneous and player < self.agent:
                self._held = action  # chosen at the same time as the agent's next move: shown after it
            else:
                self.opponent_last_action = action

    def _drawn(self, outcomes: list[tuple[int, float]]) -> int:
        possible = [outcome for outcome in outcomes if outcome[1] > 0]
        left = self._draws.random() * sum(probability for _, probability in possible)
        for action, probability in possible:
            left -= probability
            if left < 0:
                return action
        return possible[-1][0]  # what is left is a rounding error
