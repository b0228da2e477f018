"""One match: a game from its first position to its end. Agents play some of its players, and policies the others.

A pure object: it takes the agents' choices, tells which policy is to choose next, and draws what is random. It waits
for nobody and reads no clock. All that is random comes from two rows of draws. One decides what happens before an
agent's first move (the cards, the others' opening), the other all that follows; each depends on its seed alone.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from openenv_trl.errors import ConfigurationError
from openspiel_env.server.games import Game, seeded
from openspiel_env.server.moves import move_text
from openspiel_env.server.opponents import Policy

_MOST_DEALS = 1000
_NO_LEGAL_MOVE = 0  # in a joint action, the place of a player who has none

EndKind = Literal["illegal_move", "left", "turn_timeout", "policy_failed"]


@dataclass(frozen=True)
class EarlyEnd:
    """How a match ended before the game did.

    Attributes:
        kind: What happened.
        player: Whose doing it was.
        loses: Whether that player loses it; else it ends for all, as it stands.
    """

    kind: EndKind
    player: int
    loses: bool = False

    @property
    def is_of_one_gone(self) -> bool:
        """Whether that player left, or did not move in time."""
        return self.kind in ("left", "turn_timeout")


@dataclass(frozen=True)
class Move:
    """A move that was made."""

    player: int
    action: int
    text: str


class Choice:
    """A policy that is to choose.

    Attributes:
        player: Whose move it is.
        policy: Who chooses.
    """

    def __init__(self, player: int, policy: Policy, state: Any, generator: random.Random) -> None:
        self.player = player
        self.policy = policy
        # What runs in a thread gets its own: it may still run when the match has gone on without it.
        self._state = state.clone() if policy.blocks else state
        self._generator = random.Random(generator.getrandbits(64)) if policy.blocks else generator

    def think(self) -> int:
        """The chosen move's number."""
        return self.policy.choose(self._state, self.player, self._generator)


class Match:
    """A match in progress.

    A match that ends before an agent was to move at all is dealt again, from the same row of draws: an episode without
    a decision teaches nothing.

    Args:
        game: The rules.
        agents: The players that agents play.
        policies: Who plays the others.
        seed: Decides all that is random.
        task_seed: Where given, decides what is random before an agent's first move, in ``seed``'s place.
        leaver_loses: Whether an agent loses who leaves or does not move in time; else the match has no result then.

    Attributes:
        game: The rules.
        state: OpenSpiel's state.
        early_end: How it ended, where that was not the game's end.
    """

    def __init__(
        self,
        game: Game,
        agents: Collection[int],
        policies: Mapping[int, Policy],
        seed: int,
        task_seed: int | None = None,
        *,
        leaver_loses: bool = False,
    ) -> None:
        self._leaver_loses = leaver_loses
        self.game = seeded(game, seed) if game.needs_seed else game
        self.agents = frozenset(agents)
        self.early_end: EarlyEnd | None = None
        self._policies = policies
        self._later = random.Random(f"later {seed}")
        self._draws = random.Random(f"opening {seed if task_seed is None else task_seed}")
        self._begun = False
        self._deals = 1
        self._chosen: dict[int, int] = {}
        self._rewarded = [0.0] * game.players
        self._moves: list[Move] = []
        self._told = [0] * game.players
        self.state: Any = self.game.rules.new_initial_state()
        self._settle()

    @property
    def over(self) -> bool:
        """Whether the match has ended."""
        return self.early_end is not None or self.state.is_terminal()

    @property
    def truncated(self) -> bool:
        """Whether it ended without a result."""
        return self.early_end is not None and not self.early_end.loses

    def awaited(self) -> list[int]:
        """The agents who are to choose now; none while a policy is to, or once the match is over."""
        return [player for player in self._to_choose() if player in self.agents]

    def next_choice(self) -> Choice | None:
        """The policy that is to choose now; None while an agent is to, or once the match is over."""
        to_choose = self._to_choose()
        # Where all choose at once the agents come first, so that policies draw nothing before them.
        if not to_choose or not self.agents.isdisjoint(to_choose):
            return None
        return Choice(to_choose[0], self._policies[to_choose[0]], self.state, self._draws)

    def legal_actions(self, player: int) -> list[int]:
        """An agent's legal moves, in rising order; none where it is not to choose."""
        return self.state.legal_actions(player) if player in self._to_choose() else []

    def choose(self, player: int, action: int) -> None:
        """Make a move. Where players choose at the same time, it is made when all have chosen.

        Args:
            player: Who is to choose.
            action: A legal move of that player.

        Raises:
            ConfigurationError: A policy chose what is not legal.
        """
        if player not in self.agents and action not in self.state.legal_actions(player):
            raise ConfigurationError(
                f"The policy of player {player} chose {action!r}, which is not legal: it must return one of "
                "state.legal_actions(player)."
            )
        if not self.state.is_simultaneous_node():
            self._note(player, action)
            self.state.apply_action(action)
        else:
            self._chosen[player] = action
            if self._to_choose():
                return
            for each in sorted(self._chosen):
                self._note(each, self._chosen[each])
            joint = [self._chosen.get(each, _NO_LEGAL_MOVE) for each in range(self.game.players)]
            self._chosen = {}
            self.state.apply_actions(joint)
        self._settle()

    def forfeit(self, player: int) -> None:
        """End the match as lost for a player: its return is the least that the game has."""
        self.early_end = EarlyEnd("illegal_move", player, loses=True)

    def stop(self, kind: EndKind, player: int) -> None:
        """End the match, where it is not over: without a result, every return as it is, or as lost for a leaver."""
        if not self.over:
            end = EarlyEnd(kind, player)
            self.early_end = replace(end, loses=self._leaver_loses and end.is_of_one_gone)

    def returns(self) -> list[float]:
        """What each player has won so far.

        After a forfeit the others share what the loser lost where the game's returns have a fixed sum; elsewhere they
        keep what they have.
        """
        returns = [float(value) for value in self.state.returns()]
        if self.early_end is not None and self.early_end.loses:
            loser = self.early_end.player
            returns[loser] = self.game.rules.min_utility()
            total = self.game.rules.utility_sum()
            if total is not None and len(returns) > 1:
                share = (total - returns[loser]) / (len(returns) - 1)
                returns = [value if player == loser else share for player, value in enumerate(returns)]
        return returns

    def take_reward(self, player: int) -> float:
        """What a player has won since this was last asked. All rewards of a match add up to its return."""
        total = self.returns()[player]
        reward, self._rewarded[player] = total - self._rewarded[player], total
        return reward

    def take_moves(self, player: int) -> list[Move]:
        """What the others did since this was last asked, as far as everyone sees it."""
        fresh = [move for move in self._moves[self._told[player] :] if move.player != player]
        self._told[player] = len(self._moves)
        return fresh

    def last_move_of_others(self, player: int) -> int | None:
        """The number of the last move that another player made, as far as everyone sees it."""
        return next((move.action for move in reversed(self._moves) if move.player != player), None)

    def view(self, player: int) -> list[float]:
        """The tensor of what a player knows."""
        if self.game.tensor == "information_state":
            return self.state.information_state_tensor(player)
        return self.state.observation_tensor(player) if self.game.tensor else []

    def _to_choose(self) -> list[int]:
        if self.over:
            return []
        state = self.state
        if not state.is_simultaneous_node():
            return [state.current_player()]
        players = range(self.game.players)
        return [player for player in players if player not in self._chosen and state.legal_actions(player)]

    def _note(self, player: int, action: int) -> None:
        if self.game.moves_are_public and self.game.players > 1:
            self._moves.append(Move(player, action, move_text(self.game.name, self.state, player, action)))

    def _settle(self) -> None:
        """Draw what is random, until somebody is to choose or the match is over."""
        while True:
            state = self.state
            while state.is_chance_node():
                state.apply_action(self._drawn(state.chance_outcomes()))
            if self._begun:
                return
            if not state.is_terminal():
                if self.awaited():
                    self._begun, self._draws = True, self._later
                return
            if self._deals == _MOST_DEALS:
                agents = " and ".join(map(str, sorted(self.agents)))
                raise ConfigurationError(
                    f"Player {agents} was not once to move in {_MOST_DEALS} matches of '{self.game.name}'. Choose "
                    "another agent_player."
                )
            self._deals += 1
            self._moves.clear()
            self.state = self.game.rules.new_initial_state()

    def _drawn(self, outcomes: list[tuple[int, float]]) -> int:
        possible = [outcome for outcome in outcomes if outcome[1] > 0]
        left = self._draws.random() * sum(probability for _, probability in possible)
        for action, probability in possible:
            left -= probability
            if left < 0:
                return action
        return possible[-1][0]  # what is left is a rounding error


def play_policies(match: Match) -> None:
    """Let the policies move until an agent is to, in the calling thread.

    Raises:
        ConfigurationError: A policy chose what is not legal. The match is then over.
    """
    while (choice := match.next_choice()) is not None:
        try:
            match.choose(choice.player, choice.think())
        except BaseException:
            match.stop("policy_failed", choice.player)
            raise
