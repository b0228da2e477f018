"""Where sessions of one server process wait for each other, to play one match.

A match's name names who may meet, not one single table: sessions that give the same name and the same terms are put
together, first come first served for each seat, in whatever order they come. So all generations of a prompt may give
one name, and each gets a table of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable

from openenv_trl.errors import ConfigurationError, SessionStateError
from openenv_trl.server.workers.place import current_place
from openspiel_env.server.games import Game
from openspiel_env.server.opponents import Policy
from openspiel_env.server.table import Seeds, Table


def require_one_loop(execution: str) -> None:
    """Check that all sessions of this server are on one event loop, where they can wait for each other.

    Args:
        execution: Where the server runs an environment's code.

    Raises:
        ConfigurationError: They are not; the text says what to set.
    """
    place = current_place()
    if place is not None and place.count > 1:
        raise ConfigurationError(
            f"This server has {place.count} worker processes, and the sessions of a match must be in one. Start it "
            "with one worker (--workers 1, OPENENV_TRL_WORKERS=1) to have sessions play each other."
        )
    if execution != "loop":
        raise ConfigurationError(
            "Sessions can play each other on the server's event loop only: leave OPENENV_TRL_EXECUTION unset, not "
            f"'{execution}'."
        )


class Lobby:
    """The tables at which sessions wait. A table whose match begins is known here no more."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[tuple[Hashable, Table]]] = {}

    async def join(
        self,
        name: str,
        terms: Hashable,
        player: int,
        seeds: Seeds,
        *,
        game: Game,
        policies: dict[int, Policy],
        join_timeout_s: float,
        turn_timeout_s: float,
        leaver_loses: bool = False,
    ) -> Table:
        """Take a seat, and wait until all are taken and the player is to move.

        Args:
            name: The match's name.
            terms: What all players of a match must have in common.
            player: Whose seat is wanted.
            seeds: The seeds that this player gives.
            game: The rules.
            policies: Who plays the seats that no session takes.
            join_timeout_s: How long to wait for the other seats to be taken.
            turn_timeout_s: How long any player of this table waits for one move.
            leaver_loses: Whether a player of this table loses who leaves it or does not move in time.

        Raises:
            SessionStateError: The others did not come in time.
            ConfigurationError: The match cannot be played so.
        """
        table = self._table_for(name, terms, player)
        if table is None:
            table = Table(name, game, policies, turn_timeout_s, leaver_loses=leaver_loses)
            self._waiting.setdefault(name, []).append((terms, table))
        table.sit_down(player, seeds)
        try:
            if not table.free:
                self._remove(table)
                await table.begin(player)
            elif not await table.begun(join_timeout_s):
                raise SessionStateError(self._nobody_came(table, player, join_timeout_s), phase="reset")
            await table.turn(table.begun_match, player)
        except BaseException:
            table.get_up(player)
            if not table.taken:
                self._remove(table)
            raise
        return table

    def waiting(self, name: str) -> Counter[int]:
        """How many sessions wait under a name, by player."""
        return Counter(player for _, table in self._waiting.get(name, []) for player in table.taken)

    def _table_for(self, name: str, terms: Hashable, player: int) -> Table | None:
        for known, table in self._waiting.get(name, []):
            if known == terms and player in table.free:
                return table
        return None

    def _remove(self, table: Table) -> None:
        left = [entry for entry in self._waiting.get(table.name, []) if entry[1] is not table]
        if left:
            self._waiting[table.name] = left
        else:
            self._waiting.pop(table.name, None)

    def _nobody_came(self, table: Table, player: int, timeout_s: float) -> str:
        missing = " and ".join(f"player {each}" for each in table.free)
        there = ", ".join(
            f"player {each} ({count})" if count > 1 else f"player {each}"
            for each, count in sorted(self.waiting(table.name).items())
        )
        return (
            f"No session took the seat of {missing} in the match '{table.name}' within {timeout_s:g} s. This one came "
            f"as player {player}; under that name wait now: {there}. The sessions of a match must be on one server "
            "process at the same time, each with an agent_player of its own, and with the same game_params, "
            "opponent_policy, illegal_moves and on_leave. OPENSPIEL_JOIN_TIMEOUT_S sets how long one waits."
        )
