"""A match that several sessions of one server play together.

Whoever sits at a table waits until it is to move, or the match is over. Waiting holds no thread and ends: with a player
who does not move in time, or who leaves, the match ends for all. Everything here runs on one event
loop; what a policy computes runs in a thread.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass

import anyio
import anyio.to_thread

from openenv_trl.errors import ConfigurationError, EnvironmentExecutionError, OpenEnvError
from openspiel_env.server.games import Game
from openspiel_env.server.match import Match
from openspiel_env.server.opponents import Policy


async def play_policies_async(match: Match, mover: int) -> None:
    """Let the policies move until an agent is to; one that computes does so in a thread.

    Args:
        match: The match.
        mover: The agent whose call this is. Where the call is cancelled, nobody goes on from here: it left the match.

    Raises:
        ConfigurationError: A policy chose what is not legal. The match is then over.
    """
    while (choice := match.next_choice()) is not None:
        try:
            if choice.policy.blocks:
                action = await anyio.to_thread.run_sync(choice.think, abandon_on_cancel=True)
                if match.over:  # somebody left meanwhile
                    return
            else:
                action = choice.think()
            match.choose(choice.player, action)
        except Exception:
            match.stop("policy_failed", choice.player)
            raise
        except BaseException:
            match.stop("left", mover)
            raise


@dataclass(frozen=True)
class Seeds:
    """The seeds that one player gave."""

    seed: int | None = None
    task_seed: int | None = None


class Table:
    """The seats of one match, and the match once all of them are taken.

    Args:
        name: The match's name.
        game: The rules.
        policies: Who plays the seats that no session takes.
        turn_timeout_s: How long the others wait for one move.
        leaver_loses: Whether a player loses who leaves or does not move in time.

    Attributes:
        match: The match; None until all seats are taken.
        seed: The seed of the match, once it has begun.
        task_seed: Its task seed.
        failure: Why the match could not begin.
    """

    def __init__(
        self,
        name: str,
        game: Game,
        policies: dict[int, Policy],
        turn_timeout_s: float,
        *,
        leaver_loses: bool = False,
    ) -> None:
        self.name = name
        self.game = game
        self.match: Match | None = None
        self.seed: int | None = None
        self.task_seed: int | None = None
        self.failure: OpenEnvError | None = None
        self._policies = policies
        self._turn_timeout_s = turn_timeout_s
        self._leaver_loses = leaver_loses
        self._seeds: dict[int, Seeds] = {}
        self._waited_since = 0.0
        self._changed = anyio.Event()

    @property
    def begun_match(self) -> Match:
        """The match, which has begun."""
        assert self.match is not None, "whoever asks has waited for its beginning"
        return self.match

    @property
    def taken(self) -> list[int]:
        """The players whose seats sessions have taken."""
        return sorted(self._seeds)

    @property
    def free(self) -> list[int]:
        """The players whose seats sessions may still take."""
        return [player for player in range(self.game.players) if player not in self._policies | self._seeds]

    def sit_down(self, player: int, seeds: Seeds) -> None:
        """Take a free seat."""
        self._seeds[player] = seeds

    def get_up(self, player: int) -> None:
        """Leave the table. A match that is being played ends for all."""
        self._seeds.pop(player, None)
        if self.match is not None:
            self.match.stop("left", player)
        self._change()

    async def begin(self, mover: int) -> None:
        """Begin the match, with every seat taken. The first player's seed decides, of those that give one.

        Args:
            mover: The player whose call this is.

        Raises:
            ConfigurationError: The game cannot be played so; all who wait are told.
        """
        given = [self._seeds[player] for player in self.taken]
        seed = next((each.seed for each in given if each.seed is not None), None)
        self.seed = int.from_bytes(os.urandom(6), "big") if seed is None else seed
        self.task_seed = next((each.task_seed for each in given if each.task_seed is not None), None)
        loses = self._leaver_loses
        try:
            self.match = Match(self.game, self.taken, self._policies, self.seed, self.task_seed, leaver_loses=loses)
            await self._go_on(self.match, mover)
        except OpenEnvError as error:
            self.failure = error
            self._change()
            raise

    async def begun(self, timeout_s: float) -> bool:
        """Wait for the match to begin; False where it has not in that time.

        Raises:
            ConfigurationError: It cannot begin.
            EnvironmentExecutionError: It broke as it began.
        """
        with anyio.move_on_after(timeout_s):
            while self.match is None and self.failure is None:
                await self._changed.wait()
        if self.failure is not None:
            # A copy: each who waits raises one of its own.
            refused = isinstance(self.failure, ConfigurationError)
            raise (ConfigurationError if refused else EnvironmentExecutionError)(str(self.failure)) from self.failure
        return self.match is not None

    async def play(self, match: Match, player: int, action: int | None) -> None:
        """Make a player's move and wait for its next turn, or the end.

        Args:
            match: This table's match.
            player: Who moves.
            action: A legal move; None forfeits the match.
        """
        if action is None:
            match.forfeit(player)
        else:
            match.choose(player, action)
        await self._go_on(match, player)
        await self.turn(match, player)

    async def turn(self, match: Match, player: int) -> None:
        """Wait until the player is to move, or the match is over."""
        while not match.over and player not in match.awaited():
            changed = self._changed
            # A policy has no deadline here: it ends with the call of whoever it moves for.
            until = self._waited_since + self._turn_timeout_s if match.awaited() else math.inf
            with anyio.CancelScope(deadline=until) as waiting:
                await changed.wait()
            if waiting.cancelled_caught and changed is self._changed:
                match.stop("turn_timeout", match.awaited()[0])
                self._change()

    async def _go_on(self, match: Match, mover: int) -> None:
        try:
            await play_policies_async(match, mover)
        finally:
            self._waited_since = anyio.current_time()
            self._change()

    def _change(self) -> None:
        changed, self._changed = self._changed, anyio.Event()
        changed.set()
