"""OpenSpiel's games as an environment: one game a class, one match an episode.

A class's tools are its game's: one for each move where moves have words of their own, else ``play`` with the move as
text. A move takes microseconds, so that everything runs on the server's event loop.

Source: M. Lanctot et al., "OpenSpiel: A Framework for Reinforcement Learning in Games", 2019, for the games.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar, Literal, NoReturn

# By the package's own name, not relative: this module is also loaded as ``server.openspiel_environment``,
# where an app is named ``server.app:app`` and run from this folder.
from openenv_trl.environment import Environment, tool
from openenv_trl.errors import ActionValidationError, ConfigurationError, SessionStateError
from openenv_trl.types import EnvironmentMetadata
from openspiel_env.models import OpenSpielAction, OpenSpielObservation, OpenSpielState
from openspiel_env.server import games
from openspiel_env.server.match import Match
from openspiel_env.server.moves import FIXED_MOVES, MOVE_TOOLS, fixed_move_id, move_text, read_move
from openspiel_env.server.settings import MatchSettings, settings_from
from openspiel_env.server.wording import message_of, moves_in_words

DESCRIPTION = "Games of OpenSpiel, one a server: the agent is one player, and the server moves the others."


class OpenSpielEnvironment(Environment[OpenSpielAction, OpenSpielObservation, OpenSpielState]):
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

    def __init__(self, settings: MatchSettings | None = None) -> None:
        self._defaults = settings or MatchSettings()
        self._settings = self._defaults
        self._game = self._load(self._defaults)
        self._match: Match | None = None
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
            **kwargs: Not accepted; any other name is refused.

        Raises:
            ConfigurationError: An unknown argument, or a value that cannot be used.
        """
        if kwargs:
            raise ConfigurationError(
                f"The reset of OpenSpiel's games does not know {', '.join(map(repr, sorted(kwargs)))}. It takes seed, "
                "episode_id, task_seed, game_params, agent_player, opponent_policy and illegal_moves."
            )
        _require_integer("seed", seed)
        _require_integer("task_seed", task_seed)
        settings = settings_from(
            {
                "game_params": game_params,
                "agent_player": agent_player,
                "opponent_policy": opponent_policy,
                "illegal_moves": illegal_moves,
            },
            self._defaults,
        )
        game = self._game if settings is self._defaults else self._load(settings)
        # 48 bits: every JSON reader holds them exactly.
        own_seed = int.from_bytes(os.urandom(6), "big") if seed is None else seed
        match = Match(game, settings.agent_player, settings.opponent_policy, own_seed, task_seed)
        self._match, self._settings, self._seed, self._task_seed = match, settings, own_seed, task_seed
        self._episode_id = os.urandom(16).hex() if episode_id is None else episode_id
        self._step_count = 0
        return self._observation(match, None)

    def step(self, action: OpenSpielAction, timeout_s: float | None = None, **kwargs: Any) -> OpenSpielObservation:
        """Make the move of that number.

        Raises:
            SessionStateError: No match is being played: call ``reset`` first.
            ActionValidationError: The move is illegal, where that is no loss. The match stands as before.
        """
        return self.make_move(action.action_id, f"number {action.action_id}")

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
        )

    async def reset_async(
        self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any
    ) -> OpenSpielObservation:
        """Like `reset`: it takes microseconds and never waits."""
        return self.reset(seed=seed, episode_id=episode_id, **kwargs)

    async def step_async(
        self, action: OpenSpielAction, timeout_s: float | None = None, **kwargs: Any
    ) -> OpenSpielObservation:
        """Like `step`: it takes microseconds and never waits."""
        return self.step(action)

    def get_metadata(self) -> EnvironmentMetadata:
        """Name, version and what it is in one sentence."""
        return EnvironmentMetadata(name="openspiel_env", description=DESCRIPTION, version="0.1.0")

    def play_text(self, move: str) -> OpenSpielObservation:
        """Make the move that a text names.

        Raises:
            SessionStateError: No match is being played: call ``reset`` first.
            ActionValidationError: No legal move is called so, where that is no loss. The match stands as before.
        """
        match = self._playing()
        moves = {action: move_text(match.game.name, match.state, action) for action in match.legal_actions()}
        return self.make_move(read_move(move, moves), f"'{move:.80}'")

    def make_move(self, action: int | None, called: str) -> OpenSpielObservation:
        """Make the agent's move.

        Args:
            action: Its number; None where what the agent said names no legal move.
            called: What an error calls it.

        Raises:
            SessionStateError: No match is being played: call ``reset`` first.
            ActionValidationError: The move is illegal, where that is no loss. The match stands as before.
        """
        match = self._playing()
        if action is None or action not in match.legal_actions():
            if self._settings.illegal_moves == "error":
                self._refuse(match, called)
            self._step_count += 1
            return self._observation(match, match.forfeit())
        self._step_count += 1
        return self._observation(match, match.play(action))

    def _refuse(self, match: Match, called: str) -> NoReturn:
        moves = [move_text(match.game.name, match.state, action) for action in match.legal_actions()]
        listed = moves_in_words(moves, self._settings.max_listed_moves)
        raise ActionValidationError(f"The move {called} is not legal now. {listed}")

    def _playing(self) -> Match:
        if self._match is None:
            raise SessionStateError("No match was begun yet. Call reset before the first step.", phase="step")
        if self._match.over:
            raise SessionStateError("This match is over. Call reset to begin another.", phase="step")
        return self._match

    def _observation(self, match: Match, reward: float | None) -> OpenSpielObservation:
        over = match.over
        return OpenSpielObservation(
            info_state=match.view(),
            legal_actions=match.legal_actions(),
            game_phase="terminal" if over else "initial" if reward is None else "playing",
            current_player_id=match.state.current_player() if not match.forfeited else -4,
            opponent_last_action=match.opponent_last_action,
            message=message_of(match, self._settings.max_listed_moves),
            reward=reward,
            done=over,
        )

    def _load(self, settings: MatchSettings) -> games.Game:
        game = games.load(self.GAME, settings.game_params)
        if settings.agent_player >= game.players:
            raise ConfigurationError(
                f"agent_player={settings.agent_player}: '{self.GAME}' has {game.players} player(s), counted from 0."
            )
        return game


def _require_integer(name: str, value: object) -> None:
    if value is not None and not isinstance(value, int):
        raise ConfigurationError(f"{name} must be an integer or None, not {value!r}.")


@functools.lru_cache(maxsize=256)
def environment_class(game_name: str) -> type[OpenSpielEnvironment]:
    """The environment class of a game: with the game's own tools.

    Args:
        game_name: A name that OpenSpiel has registered, such as "catch" or "tic_tac_toe"; with parameters in
            OpenSpiel's own form where a parameter is itself a game, as in "misere(game=tic_tac_toe())".
    """
    short = games.short_name(game_name)
    tools = MOVE_TOOLS.get(short)
    if tools is None:
        attributes: dict[str, Any] = {"play": _play_tool(FIXED_MOVES.get(short))}
    else:
        attributes = {f"move_{word}": _move_tool(short, word, text) for word, text in tools.items()}
    title = "".join(part.capitalize() for part in short.split("_"))
    attributes |= {"GAME": game_name, "__doc__": f"The game {game_name}: see `OpenSpielEnvironment`."}
    return type(f"{title}Environment", (OpenSpielEnvironment,), attributes)


# Asynchronous like the hooks: a server calls them on its event loop, without a thread.
def _move_tool(
    game_name: str, word: str, description: str
) -> Callable[[OpenSpielEnvironment], Awaitable[OpenSpielObservation]]:
    action = fixed_move_id(game_name, word)

    @tool(name=word, description=description)
    async def move(self: OpenSpielEnvironment) -> OpenSpielObservation:
        return self.make_move(action, f"'{word}'")

    return move


def _play_tool(words: tuple[str, ...] | None) -> Callable[..., Awaitable[OpenSpielObservation]]:
    async def play(self: OpenSpielEnvironment, move: str) -> OpenSpielObservation:
        return self.play_text(move)

    if words is not None:
        play.__annotations__["move"] = Literal[words]
    return tool(
        name="play", description="Make a move: one of those that the last message names, as it is named there."
    )(play)
