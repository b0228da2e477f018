"""Atari 2600 games as an environment: one game a class, one game from its start to its end an episode.

Steps run on the server's event loop: ALE holds Python's lock while it computes a frame, so that threads would add their
own cost and win nothing (measured in the README). Long calls of ``act`` run in threads, where others get their turn
between two frames; so do resets, since a session's first one loads the game.

Source: M. Bellemare et al., "The Arcade Learning Environment: An Evaluation Platform for General Agents", 2013.
"""

from __future__ import annotations

import functools
import os
from typing import Any, ClassVar, Literal

import anyio.to_thread

# By the package's own name, not relative: this module is also loaded as ``server.atari_environment``,
# where an app is named ``server.app:app`` and run from this folder.
from atari_env.models import AtariAction, AtariObservation, AtariState
from atari_env.server.console import SHELF, Console, Pixels
from atari_env.server.episode import Episode, Step
from atari_env.server.games import rom_of, title_of
from atari_env.server.joystick import act_tool, action_names
from atari_env.server.screens import Eye, figure_of
from atari_env.server.settings import MOST_FRAMES_OF_A_CALL, AtariSettings, settings_from
from atari_env.server.words import Teller
from openenv_trl.environment import Environment, tool
from openenv_trl.errors import ActionValidationError, ConfigurationError, SessionStateError
from openenv_trl.types import EnvironmentMetadata, Tool

DESCRIPTION = "Games of the Atari 2600, one a server: pixels, RAM, pictures or words, and the joystick as a tool."

_FRAMES_ON_THE_LOOP = 60  # of one call of ``act``; they take some 15 ms


class AtariEnvironment(Environment[AtariAction, AtariObservation, AtariState]):
    """One Atari game an episode. Make a game's class by `environment_class`.

    A step holds one position of the joystick for the frames of ``frameskip``; its reward is what the game scored
    meanwhile. The episode ends with the game, with a lost life where that is set, or at the limit of frames; the last
    is told by ``metadata["truncated"]``.

    Args:
        settings: How it is played; the defaults if None.

    Example:
        >>> env = environment_class("pong")()
        >>> env.reset(seed=1).pixels().shape
        (210, 160, 3)
    """

    SUPPORTS_CONCURRENT_SESSIONS: ClassVar[bool] = True
    EXECUTION: ClassVar[Literal["auto", "loop", "thread", "process"]] = "auto"
    REPEATABLE: ClassVar[bool] = True

    GAME: ClassVar[str] = "pong"
    """The game, as ALE names its ROM."""

    def __init__(self, settings: AtariSettings | None = None) -> None:
        self._defaults = settings or AtariSettings()
        self._console: Console | None = None
        self._episode: Episode | None = None
        self._eye: Eye | None = None
        self._teller: Teller | None = None
        self._settings = self._defaults
        self._episode_id: str | None = None
        self._seed: int | None = None
        self._task_seed: int | None = None
        self._step_count = 0

    def reset(
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        task_seed: int | None = None,
        obs_type: Literal["rgb", "grayscale", "ram", "png", "data_url", "text"] | None = None,
        full_action_space: bool | None = None,
        mode: int | None = None,
        difficulty: int | None = None,
        repeat_action_probability: float | None = None,
        frameskip: int | tuple[int, int] | None = None,
        max_num_frames_per_episode: int | None = None,
        noop_max: int | None = None,
        terminal_on_life_loss: bool | None = None,
        reward_clipping: bool | None = None,
        color_averaging: bool | None = None,
        max_pooling: bool | None = None,
        screen_size: tuple[int, int] | None = None,
        frame_stack: int | None = None,
        with_text: bool | None = None,
        text_grid: Literal["auto", "always", "never"] | None = None,
        text_columns: int | None = None,
        text_rows: int | None = None,
        max_repeat: int | None = None,
        **kwargs: Any,
    ) -> AtariObservation:
        """Begin a game. All but the first three are `AtariSettings`, for this game; as on the server if None.

        Args:
            seed: Decides all that is random in it: sticky actions, drawn frameskips, no-ops at the start. Drawn from
                the operating system's entropy if None.
            episode_id: A name for it; made up if None.
            task_seed: Where given, decides the number of no-ops at the start, and ``seed`` the rest: games of one
                ``task_seed`` begin in one and the same frame.
            obs_type: What is observed: "rgb", "grayscale", "ram", "png", "data_url" or "text".
            full_action_space: Whether all 18 actions are legal.
            mode: The game's mode.
            difficulty: The game's difficulty.
            repeat_action_probability: How likely each frame repeats the last action.
            frameskip: Frames that an action is held for, or a range to draw from; 60 at most.
            max_num_frames_per_episode: Frames after which the game is cut off; 0 for never.
            noop_max: Frames of doing nothing at the start, at most; up to 300.
            terminal_on_life_loss: Whether a lost life ends the episode.
            reward_clipping: Whether a reward is only its sign.
            color_averaging: Whether ALE averages the colours of two screens.
            max_pooling: Whether each pixel is the larger one of two frames.
            screen_size: Height and width of what is seen, each 512 at most.
            frame_stack: Screens that are stacked, 16 at most.
            with_text: Whether words come beside pixels.
            text_grid: When the words have a grid: "auto", "always" or "never".
            text_columns: Columns of the grid.
            text_rows: Rows of the grid.
            max_repeat: Steps of one call of ``act`` at most; fewer where they had more than 240 frames.
            **kwargs: Not accepted; any other name is refused.

        Raises:
            ConfigurationError: An unknown argument, or a value that cannot be used. The game before goes on.
        """
        given = locals()
        _require_integer("seed", seed)
        _require_integer("task_seed", task_seed)
        chosen = settings_from({**{name: given[name] for name in AtariSettings.model_fields}, **kwargs}, self._defaults)
        # 48 bits: every JSON reader holds them exactly.
        own_seed = int.from_bytes(os.urandom(6), "big") if seed is None else seed
        episode = self._begin(chosen, own_seed, task_seed)
        self._episode, self._settings, self._seed, self._task_seed = episode, chosen, own_seed, task_seed
        self._eye, self._teller = Eye(episode), Teller(episode)
        self._episode_id = os.urandom(16).hex() if episode_id is None else episode_id
        self._step_count = 0
        return self._observation(None, self._teller.tell(first=True), with_pixels=True)

    def step(self, action: AtariAction, timeout_s: float | None = None, **kwargs: Any) -> AtariObservation:
        """Hold the action of that number for one step.

        Raises:
            SessionStateError: No game is being played: call ``reset`` first.
            ActionValidationError: There is no such action. The game stands as before.
        """
        episode = self._playing()
        if not 0 <= action.action_id < len(episode.actions):
            listed = ", ".join(f"{number} {each.name}" for number, each in enumerate(episode.actions))
            raise ActionValidationError(f"There is no action number {action.action_id}. There are: {listed}.")
        self._step_count += 1
        step = episode.step(action.action_id)
        told = self._settings.with_text or self._settings.obs_type == "text"
        return self._observation([step], self._told() if told else "", with_pixels=True)

    # Asynchronous like `step_async`: a server calls it on its event loop.
    @tool
    async def act(self, action: str, repeat: int = 1) -> AtariObservation:
        """Hold the joystick so for a number of steps, fewer where a life is lost or the game ends."""
        if repeat * self._settings.longest_frameskip <= _FRAMES_ON_THE_LOOP:
            return self.hold(action, repeat)
        return await anyio.to_thread.run_sync(self.hold, action, repeat)

    def hold(self, action: str, repeat: int = 1) -> AtariObservation:
        """What the tool ``act`` does: as many steps, whose rewards are added up, and the screen in words.

        The numbers of pixels and RAM are left out, since a model would read them as text; a picture is there where it
        is observed.

        Raises:
            SessionStateError: No game is being played: call ``reset`` first.
            ActionValidationError: There is no such action, or ``repeat`` is out of range. The game stands as before.
        """
        episode = self._playing()
        names = [each.name for each in episode.actions]
        wanted = action.strip().upper()
        if wanted not in names:
            raise ActionValidationError(f"There is no action '{action:.40}'. There are: {', '.join(names)}.")
        most = self._settings.most_repeats
        if not 1 <= repeat <= most:
            raise ActionValidationError(
                f"repeat must be from 1 to {most}, not {repeat}: max_repeat is {self._settings.max_repeat}, and one "
                f"call computes {MOST_FRAMES_OF_A_CALL} frames at most."
            )
        number = names.index(wanted)
        steps: list[Step] = []
        while len(steps) < repeat and not episode.over and not (steps and steps[-1].life_lost):
            steps.append(episode.step(number))
            if self._eye is not None:
                self._eye.blink()
        self._step_count += len(steps)
        return self._observation(steps, self._told(), with_pixels=False)

    @property
    def state(self) -> AtariState:
        """Which game is played and how, its seeds, and the number of steps."""
        settings = self._settings
        return AtariState(
            episode_id=self._episode_id,
            step_count=self._step_count,
            game_name=rom_of(self.GAME)[0],
            **{name: getattr(settings, name) for name in _PUBLIC_SETTINGS},
            settings=settings.model_dump(),
            seed=self._seed,
            task_seed=self._task_seed,
        )

    async def step_async(self, action: AtariAction, timeout_s: float | None = None, **kwargs: Any) -> AtariObservation:
        """Like `step`: it takes a millisecond, with a frameskip of 60 some 15, and never waits."""
        return self.step(action)

    def render(self) -> Pixels | None:
        """The true screen as it is now, height x width x 3, whatever is observed; None before the first reset."""
        return None if self._episode is None else self._episode.console.rgb()

    def render_web(self, observation: dict[str, Any]) -> str | None:
        """The true screen as HTML with a picture, and the score: what the debug page shows."""
        episode, screen = self._episode, self.render()
        if episode is None or screen is None:
            return None
        return figure_of(episode, screen)

    def web_actions(self, observation: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
        """A button for each action, for the debug page; none where no game is being played."""
        if self._episode is None or self._episode.over:
            return []
        return [(each.name, {"action_id": number}) for number, each in enumerate(self._episode.actions)]

    @classmethod
    def list_tools(cls) -> list[Tool]:
        """The tool ``act``, with the actions of the game."""
        return [act_tool(super().list_tools()[0], action_names(cls.GAME, False), AtariSettings().most_repeats)]

    def offered_tools(self) -> list[Tool]:
        """The tool ``act``, with the actions of this episode."""
        settings = self._settings
        names = action_names(self.GAME, settings.full_action_space)
        return [act_tool(super().list_tools()[0], names, settings.most_repeats)]

    def get_metadata(self) -> EnvironmentMetadata:
        """Name, version and what it is in one sentence."""
        return EnvironmentMetadata(name="atari_env", description=DESCRIPTION, version="0.1.0")

    def check(self) -> None:
        """See whether the game can be played with these settings.

        Raises:
            ConfigurationError: It cannot; the message says why.
        """
        console = SHELF.take(self.GAME, self._defaults.color_averaging)
        try:
            console.check(self._defaults.mode, self._defaults.difficulty)
        finally:
            SHELF.give_back(console)

    def close(self) -> None:
        """Put the console back on its shelf."""
        console, self._console, self._episode = self._console, None, None
        if console is not None:
            SHELF.give_back(console)

    def _playing(self) -> Episode:
        if self._episode is None:
            raise SessionStateError("No game was begun yet. Call reset before the first step.", phase="step")
        if self._episode.over:
            raise SessionStateError("This game is over. Call reset to begin another.", phase="step")
        return self._episode

    def _told(self) -> str:
        return "" if self._teller is None else self._teller.tell()

    def _begin(self, settings: AtariSettings, seed: int, task_seed: int | None) -> Episode:
        console = self._console
        if console is None or console.color_averaging != settings.color_averaging:
            console = SHELF.take(self.GAME, settings.color_averaging)
        try:
            episode = Episode(console, settings, seed, task_seed)
        except ConfigurationError:
            if console is not self._console:
                SHELF.give_back(console)
            raise
        if self._console is not None and console is not self._console:
            SHELF.give_back(self._console)
        self._console = console
        return episode

    def _observation(self, steps: list[Step] | None, message: str, with_pixels: bool) -> AtariObservation:
        episode, eye = self._episode, self._eye
        assert episode is not None
        assert eye is not None
        screen = eye.look() if with_pixels else None
        metadata: dict[str, Any] = {
            "game_name": episode.console.game,
            "action_meanings": [each.name for each in episode.actions],
        }
        if episode.truncated:
            metadata["truncated"] = True
        if steps and any(step.life_lost for step in steps):
            metadata["life_lost"] = True
        if steps and self._settings.reward_clipping:
            metadata["score"] = sum(step.score for step in steps)
        return AtariObservation(
            screen=[] if screen is None else screen.ravel(),
            screen_shape=[0] if screen is None else list(screen.shape),
            legal_actions=list(range(len(episode.actions))),
            lives=episode.console.lives(),
            episode_frame_number=episode.frames,
            frame_number=episode.frames,
            message=message,
            image=eye.picture(),
            reward=None if steps is None else sum(step.reward for step in steps),
            done=episode.over,
            metadata=metadata,
        )


_PUBLIC_SETTINGS = ("obs_type", "full_action_space", "mode", "difficulty", "repeat_action_probability", "frameskip")


def environment_class(game_name: str) -> type[AtariEnvironment]:
    """The environment class of a game.

    Args:
        game_name: "pong", "SpaceInvaders" or "ALE/Pong-v5".

    Raises:
        ConfigurationError: There is no such game; the message names near ones.
    """
    return _class_of(rom_of(game_name)[0])


@functools.cache
def _class_of(game: str) -> type[AtariEnvironment]:
    name = f"{title_of(game).replace(' ', '')}Environment"
    attributes = {"GAME": game, "__doc__": f"The game {game}: see `AtariEnvironment`.", "__module__": __name__}
    return type(name, (AtariEnvironment,), attributes)


def __getattr__(name: str) -> Any:
    # A class that was made here is found by its name again, as where it is sent to another process.
    if name.endswith("Environment") and name != "Environment":
        try:
            return environment_class(name.removesuffix("Environment"))
        except ConfigurationError:
            pass
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _require_integer(name: str, value: object) -> None:
    if value is not None and not isinstance(value, int):
        raise ConfigurationError(f"{name} must be an integer or None, not {value!r}.")
