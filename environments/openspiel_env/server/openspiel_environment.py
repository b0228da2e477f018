"""OpenSpiel's games as an environment: one game a class, one match an episode.

A class's tools are its game's: one for each move where moves have words of their own, else ``play`` with the move as
text. A move takes microseconds and runs on the server's event loop. A policy that computes does so in a thread
meanwhile, and who waits for another session holds none.

Source: M. Lanctot et al., "OpenSpiel: A Framework for Reinforcement Learning in Games", 2019, for the games.
"""

from __future__ import annotations

import copyreg
import functools
import os
from abc import ABCMeta
from typing import Any, ClassVar, Literal, cast

import anyio.to_thread

# By the package's own name, not relative: this module is also loaded as ``server.openspiel_environment``,
# where an app is named ``server.app:app`` and run from this folder.
from openenv_trl.environment import Environment
from openenv_trl.errors import ActionValidationError, ConfigurationError, SessionStateError
from openenv_trl.types import EnvironmentMetadata, Tool
from openspiel_env.models import OpenSpielAction, OpenSpielObservation, OpenSpielState
from openspiel_env.server import games
from openspiel_env.server.lobby import Lobby, require_one_loop
from openspiel_env.server.match import Match, play_policies
from openspiel_env.server.move_tools import tools_of, with_moves_listed
from openspiel_env.server.moves import move_text, read_move
from openspiel_env.server.observing import observation_of
from openspiel_env.server.opening import Opening, opening_of, policies_of
from openspiel_env.server.opponents import imported
from openspiel_env.server.settings import MatchSettings
from openspiel_env.server.table import Seeds, Table, play_policies_async
from openspiel_env.server.wording import moves_in_words

DESCRIPTION = "Games of OpenSpiel, one a server: the agent is one player, and policies or other agents are the others."


class _GameClass(ABCMeta):
    """What the classes of games are made of: they are sent to other processes by their game's name."""


class OpenSpielEnvironment(Environment[OpenSpielAction, OpenSpielObservation, OpenSpielState], metaclass=_GameClass):
    """One match of an OpenSpiel game an episode. Make a game's class by `environment_class`.

    A step's reward is what the agent's player has won since its last move; over an episode they add up to OpenSpiel's
    return. The episode ends with the game.

    Args:
        settings: How the game is played; the defaults if None.

    Raises:
        ConfigurationError: The game cannot be loaded with these settings, or has no such player.

    Example:
        >>> env = environment_class("catch")()
        >>> env.reset(seed=1).message
        'Ball column 2, row 0. Paddle column 2.'
    """

    SUPPORTS_CONCURRENT_SESSIONS: ClassVar[bool] = True
    EXECUTION: ClassVar[Literal["auto", "loop", "thread", "process"]] = "loop"

    GAME: ClassVar[str] = "catch"
    """OpenSpiel's name of the game."""
    LOBBY: ClassVar[Lobby] = Lobby()
    """Where the game's sessions of one process meet."""

    def __init__(self, settings: MatchSettings | None = None) -> None:
        self._defaults = settings or MatchSettings()
        self._settings = self._defaults
        self._game = games.load(self.GAME, self._defaults.game_params)
        policies_of(self._game, self._defaults)  # raises where they cannot be played
        self._match: Match | None = None
        self._table: Table | None = None
        self._told_end = False
        self._episode_id: str | None = None
        self._seed: int | None = None
        self._task_seed: int | None = None
        self._step_count = 0

    def reset(
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        task_seed: int | None = None,
        game_params: dict[str, Any] | None = None,
        agent_player: int | None = None,
        opponent_policy: str | None = None,
        illegal_moves: str | None = None,
        on_leave: str | None = None,
        match: str | None = None,
        **kwargs: Any,
    ) -> OpenSpielObservation:
        """Begin a match.

        Args:
            seed: Decides all that is random in it, chance and opponents; drawn from the operating system's entropy if
                None.
            episode_id: A name for it; made up if None.
            task_seed: Where given, decides what is random before the agent's first move, and ``seed`` the rest: matches
                of one ``task_seed`` begin in one and the same position.
            game_params: The game's parameters in this match; the server's if None.
            agent_player: Which player the agent is in this match; as on the server if None.
            opponent_policy: How the others move in this match; as on the server if None.
            illegal_moves: What an illegal move does in this match; as on the server if None.
            on_leave: How a match with other sessions ends for the others when one leaves it; as on the server if None.
            match: A name under which sessions of this server meet, where ``opponent_policy`` has sessions play. Only
                by `reset_async`, since the others are waited for.
            **kwargs: Not accepted; any other name is refused.

        Raises:
            ConfigurationError: An unknown argument, or a value that cannot be used. The match before stands as it was.
        """
        arguments = {
            "seed": seed,
            "task_seed": task_seed,
            "game_params": game_params,
            "agent_player": agent_player,
            "opponent_policy": opponent_policy,
            "illegal_moves": illegal_moves,
            "on_leave": on_leave,
            "match": match,
        }
        opening = opening_of(self.GAME, {**kwargs, **arguments}, self._defaults)
        if opening.match_name is not None:
            raise ConfigurationError("A match with other sessions is waited for: await reset_async(), or use a server.")
        for policy in opening.policies.values():
            policy.prepare()
        own_seed = opening.own_seed()
        begun = Match(opening.game, [opening.agent], opening.policies, own_seed, opening.task_seed)
        play_policies(begun)
        return self._begin(opening, begun, None, episode_id, own_seed)

    async def reset_async(
        self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any
    ) -> OpenSpielObservation:
        """Like `reset`. With ``match``, wait for the other players' sessions and for this player's turn.

        Raises:
            ConfigurationError: An unknown argument, or a value that cannot be used. The match before stands as it was.
            SessionStateError: The other sessions did not come in time.
        """
        opening = opening_of(self.GAME, {**kwargs, "seed": seed}, self._defaults)
        if opening.match_name is not None:
            require_one_loop(self._effective_execution)
        for policy in opening.policies.values():
            if policy.blocks:
                await anyio.to_thread.run_sync(policy.prepare, abandon_on_cancel=True)
        if opening.match_name is None:
            own_seed = opening.own_seed()
            begun = Match(opening.game, [opening.agent], opening.policies, own_seed, opening.task_seed)
            await play_policies_async(begun, opening.agent)
            return self._begin(opening, begun, None, episode_id, own_seed)
        self._leave()
        self._match = None
        table = await self.LOBBY.join(
            opening.match_name,
            opening.terms,
            opening.agent,
            Seeds(opening.seed, opening.task_seed),
            game=opening.game,
            policies=opening.policies,
            join_timeout_s=opening.settings.join_timeout_s,
            turn_timeout_s=opening.settings.turn_timeout_s,
            leaver_loses=opening.settings.on_leave == "loss",
        )
        return self._begin(opening, table.begun_match, table, episode_id, table.seed)

    def step(self, action: OpenSpielAction, timeout_s: float | None = None, **kwargs: Any) -> OpenSpielObservation:
        """Make the move of that number.

        Raises:
            SessionStateError: No match is being played: call ``reset`` first.
            ActionValidationError: The move is illegal, where that is no loss. The match stands as before.
        """
        return self.make_move(action.action_id, f"number {action.action_id}")

    async def step_async(
        self, action: OpenSpielAction, timeout_s: float | None = None, **kwargs: Any
    ) -> OpenSpielObservation:
        """Like `step`. In a match with other sessions it ends when this player is to move again.

        Raises:
            SessionStateError: No match is being played: call ``reset`` first.
            ActionValidationError: The move is illegal, where that is no loss. The match stands as before.
        """
        return await self.make_move_async(action.action_id, f"number {action.action_id}")

    @property
    def state(self) -> OpenSpielState:
        """Which game is played and how, its seeds, and the number of the agent's moves."""
        settings = self._settings
        game = self._game if self._match is None else self._match.game
        return OpenSpielState(
            episode_id=self._episode_id,
            step_count=self._step_count,
            game_name=self.GAME,
            agent_player=settings.agent_player,
            opponent_policy=settings.opponent_policy,
            game_params=settings.game_params,
            num_players=game.players,
            illegal_moves=settings.illegal_moves,
            seed=self._seed,
            task_seed=self._task_seed,
            match=None if self._table is None else self._table.name,
        )

    def close(self) -> None:
        """Leave the match. One with other sessions ends for all of them."""
        self._leave()

    @classmethod
    def prepare(cls, settings: MatchSettings) -> None:
        """Import the server's own policies, and compute what is computed once, in the calling thread.

        Raises:
            ConfigurationError: The game cannot be played with these settings, or is too large for a policy.
        """
        for name, path in settings.policies.items():
            imported(name, path)
        for policy in policies_of(games.load(cls.GAME, settings.game_params), settings).values():
            policy.prepare()
        cls(settings).offered_tools()

    @classmethod
    def list_tools(cls) -> list[Tool]:
        """The game's tools, as with OpenSpiel's own parameters."""
        tools = super().list_tools()
        try:
            return with_moves_listed(tools, games.load(cls.GAME, {}))
        except ConfigurationError:  # one that cannot do without parameters
            return tools

    def offered_tools(self) -> list[Tool]:
        """The game's tools, as with this server's parameters."""
        return with_moves_listed(super().list_tools(), self._game)

    def get_metadata(self) -> EnvironmentMetadata:
        """Name, version and what it is in one sentence."""
        return EnvironmentMetadata(name="openspiel_env", description=DESCRIPTION, version="0.1.0")

    def play_text(self, move: str) -> OpenSpielObservation:
        """Make the move that a text names: see `make_move`."""
        return self.make_move(self.read(move), f"'{move:.80}'")

    def read(self, move: str) -> int | None:
        """The number of the legal move that a text names; None where it names none.

        Raises:
            SessionStateError: No match is being played: call ``reset`` first.
        """
        match, player = self._playing(), self._settings.agent_player
        legal = match.legal_actions(player)
        return read_move(move, {each: move_text(match.game.name, match.state, player, each) for each in legal})

    def make_move(self, action: int | None, called: str) -> OpenSpielObservation:
        """Make the agent's move in a match against policies.

        Args:
            action: Its number; None where what the agent said names no legal move.
            called: What an error calls it.

        Raises:
            SessionStateError: No match is being played: call ``reset`` first. Or it is one with other sessions.
            ActionValidationError: The move is illegal, where that is no loss. The match stands as before.
        """
        match, player = self._playing(), self._settings.agent_player
        if self._table is not None:
            raise SessionStateError("A match with other sessions is waited for: await step_async(), or use a server.")
        if (legal := self._checked(match, action, called)) is None:
            match.forfeit(player)
        else:
            match.choose(player, legal)
            play_policies(match)
        return self._observation(match)

    async def make_move_async(self, action: int | None, called: str) -> OpenSpielObservation:
        """Like `make_move`, in any match: wait for policies that compute and for the other sessions.

        Where the match ended before this move, it is not made, and the observation tells of the end.
        """
        match, player, table = self._playing(), self._settings.agent_player, self._table
        if match.over:
            return self._observation(match)
        legal = self._checked(match, action, called)
        if table is not None:
            await table.play(match, player, legal)
        elif legal is None:
            match.forfeit(player)
        else:
            match.choose(player, legal)
            await play_policies_async(match, player)
        return self._observation(match)

    def _checked(self, match: Match, action: int | None, called: str) -> int | None:
        """The move, which counts from here on; None for an illegal one that loses the match."""
        legal = match.legal_actions(self._settings.agent_player)
        if action not in legal:
            action = None
            if self._settings.illegal_moves == "error":
                moves = [move_text(match.game.name, match.state, self._settings.agent_player, each) for each in legal]
                listed = moves_in_words(moves, self._settings.max_listed_moves)
                raise ActionValidationError(f"The move {called} is not legal now. {listed}")
        self._step_count += 1
        return action

    def _playing(self) -> Match:
        if self._match is None:
            raise SessionStateError("No match was begun yet. Call reset before the first step.", phase="step")
        if self._match.over and (self._told_end or self._table is None):
            raise SessionStateError("This match is over. Call reset to begin another.", phase="step")
        return self._match

    def _observation(self, match: Match, *, initial: bool = False) -> OpenSpielObservation:
        self._told_end = match.over
        player, most_moves = self._settings.agent_player, self._settings.max_listed_moves
        return observation_of(match, player, most_moves, initial=initial, others_wait=self._table is not None)

    def _begin(
        self, opening: Opening, match: Match, table: Table | None, episode_id: str | None, seed: int | None
    ) -> OpenSpielObservation:
        self._leave()
        self._match, self._table, self._settings = match, table, opening.settings
        self._seed, self._task_seed = seed, opening.task_seed if table is None else table.task_seed
        self._episode_id = os.urandom(16).hex() if episode_id is None else episode_id
        self._step_count = 0
        return self._observation(match, initial=True)

    def _leave(self) -> None:
        table, self._table = self._table, None
        if table is not None:
            table.get_up(self._settings.agent_player)


@functools.lru_cache(maxsize=256)
def environment_class(game_name: str) -> type[OpenSpielEnvironment]:
    """The environment class of a game: with the game's own tools, and a lobby of its own.

    Args:
        game_name: A name that OpenSpiel has registered, such as "catch" or "tic_tac_toe"; with parameters in
            OpenSpiel's own form where a parameter is itself a game, as in "misere(game=tic_tac_toe())".
    """
    short = games.short_name(game_name)
    title = "".join(part.capitalize() for part in short.split("_"))
    attributes = {
        **tools_of(short),
        "GAME": game_name,
        "LOBBY": Lobby(),
        "__doc__": f"The game {game_name}: see `OpenSpielEnvironment`.",
    }
    return cast("type[OpenSpielEnvironment]", _GameClass(f"{title}Environment", (OpenSpielEnvironment,), attributes))


def _sent(game_class: Any) -> Any:
    made = game_class.__bases__ == (OpenSpielEnvironment,)
    return (environment_class, (game_class.GAME,)) if made else game_class.__qualname__


copyreg.pickle(_GameClass, _sent)
