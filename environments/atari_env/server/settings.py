"""How a game is played and what is seen of it: the settings of a server, and of a single episode.

Sources: M. Bellemare et al., "The Arcade Learning Environment", 2013, for the console's; V. Mnih et al., "Human-level
control through deep reinforcement learning", 2015, for no-ops at the start, two-frame maximum, clipped rewards, stacked
and small screens; M. Machado et al., "Revisiting the Arcade Learning Environment", 2018, for sticky actions, modes,
difficulties and the limit of frames.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from openenv_trl.errors import ConfigurationError

MOST_FRAMES_OF_A_CALL = 240
"""Frames that one step, or one call of ``act``, computes at most: some 50 ms of a core."""

MOST_SCREEN_BYTES = 2 * 1024 * 1024
"""Bytes of one observation's stacked screens at most; as JSON they are four times as many."""

Frames = Annotated[int, Field(ge=1, le=60)]
Side = Annotated[int, Field(ge=1, le=512)]


class AtariSettings(BaseModel):
    """How a game is played; ``reset`` may change each of them for one episode."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    obs_type: Literal["rgb", "grayscale", "ram", "png", "data_url", "text"] = "rgb"
    """What is observed. "rgb", "grayscale" and "ram": numbers in ``screen``. "png" and "data_url": a picture in
    ``image``. "text": words in ``message``. Pixels by default, as in the public package."""
    full_action_space: bool = False
    """Whether all 18 positions of the joystick are legal, or only those that the game has a use for."""
    mode: int | None = None
    """The game's mode, one that it has; its default if None."""
    difficulty: int | None = None
    """The game's difficulty, one that it has; its default if None."""
    repeat_action_probability: float = Field(default=0.0, ge=0.0, le=1.0)
    """How likely, in each frame, the last action is repeated in place of the agent's ("sticky actions"). 0 as in the
    public package; Machado et al. advise 0.25."""
    frameskip: Frames | tuple[Frames, Frames] = 4
    """Frames that an action is held for, 60 at most. Of a range such as (2, 5) each step draws one, the last number
    left out, as in Gymnasium. 4 as in the public package."""
    max_num_frames_per_episode: int = Field(default=108_000, ge=0)
    """Frames after which an episode is cut off; 0 for no limit. Half an hour of play, as Machado et al. evaluate: some
    games never end by themselves."""
    noop_max: int = Field(default=0, ge=0, le=300)
    """Frames of doing nothing at the start: between 1 and so many, drawn for each episode; none if 0. Mnih et al. take
    30; 300 at most."""
    terminal_on_life_loss: bool = False
    """Whether a lost life ends the episode. The next ``reset`` begins a new game."""
    reward_clipping: bool = False
    """Whether a step's reward is only its sign."""
    color_averaging: bool = False
    """Whether ALE averages each screen with the one before it, so that what flickers is seen in both."""
    max_pooling: bool = False
    """Whether each pixel is the larger of the last two frames', against flickering as in Mnih et al."""
    screen_size: tuple[Side, Side] | None = None
    """Height and width that pixels and pictures are scaled to, such as (84, 84), each 512 at most; the console's own,
    210 x 160 in most games, if None."""
    frame_stack: int = Field(default=1, ge=1, le=16)
    """Screens of the last so many steps, stacked, the newest last; at the start the first one several times. 16 at
    most, and all together no more than `MOST_SCREEN_BYTES`."""
    with_text: bool = False
    """Whether ``message`` has the screen in words beside other observations too. False, since it takes time."""
    text_grid: Literal["auto", "always", "never"] = "auto"
    """When the words have a grid of the screen's colours. "auto": where the game's objects are not known by name."""
    text_columns: Annotated[int, Field(ge=4, le=160)] = 20
    """Columns of that grid. So few that a model reads a screen in some 400 tokens."""
    text_rows: Annotated[int, Field(ge=4, le=210)] = 16
    """Rows of that grid."""
    max_repeat: int = Field(default=60, ge=1, le=MOST_FRAMES_OF_A_CALL)
    """Steps that one call of the tool ``act`` takes at most, and fewer where they had more frames than
    `MOST_FRAMES_OF_A_CALL` (`most_repeats`). 60 are 4 seconds of play with a frameskip of 4."""

    @property
    def longest_frameskip(self) -> int:
        """Frames that an action is held for at most."""
        return self.frameskip if isinstance(self.frameskip, int) else self.frameskip[1] - 1

    @property
    def most_repeats(self) -> int:
        """Steps that one call of ``act`` takes at most, with this frameskip."""
        return min(self.max_repeat, MOST_FRAMES_OF_A_CALL // self.longest_frameskip)

    @field_validator("frameskip", "screen_size", mode="before")
    @classmethod
    def _pair_of_text(cls, value: Any) -> Any:
        # As environment variables have it: "4", "2,5" or "84x84".
        if isinstance(value, str):
            parts = value.replace("x", ",").replace("-", ",").split(",")
            return parts[0] if len(parts) == 1 else parts
        return value

    @field_validator("frameskip")
    @classmethod
    def _range_goes_up(cls, value: int | tuple[int, int]) -> int | tuple[int, int]:
        if isinstance(value, tuple) and value[0] >= value[1]:
            raise ValueError(f"a range goes from a smaller number to a larger one, not from {value[0]} to {value[1]}")
        return value

    @model_validator(mode="after")
    def _fits_together(self) -> AtariSettings:
        if self.color_averaging and self.max_pooling:
            raise ValueError("color_averaging and max_pooling both act against flickering: choose one of them")
        if self.obs_type in ("rgb", "grayscale"):
            height, width = self.screen_size or _LARGEST_SCREEN
            most = self.frame_stack * height * width * (3 if self.obs_type == "rgb" else 1)
            if most > MOST_SCREEN_BYTES:
                raise ValueError(
                    f"{self.frame_stack} screens of {height} x {width} in {self.obs_type} are {most:,} bytes, more "
                    f"than the {MOST_SCREEN_BYTES:,} of one observation: a smaller screen_size or frame_stack is needed"
                )
        return self


_LARGEST_SCREEN = (250, 160)  # of those that the games have

_EXPECTED = {
    "frameskip": "a number of frames from 1 to 60, or a range of two such as (2, 5)",
    "screen_size": "a height and a width from 1 to 512, such as (84, 84)",
}


_PUBLIC_NAMES = {"repeat_action_probability": "ATARI_REPEAT_ACTION_PROB"}

ENVIRONMENT_VARIABLES = {
    _PUBLIC_NAMES.get(setting, f"ATARI_{setting.upper()}"): setting for setting in AtariSettings.model_fields
}
"""Which of the operating system's environment variables gives which setting."""


def settings_from(values: Mapping[str, Any], base: AtariSettings | None = None) -> AtariSettings:
    """Settings from their values by name.

    Args:
        values: The values; None leaves a setting as it is in ``base``.
        base: The settings to start from; the defaults if None.

    Raises:
        ConfigurationError: A name that is no setting, or a value that cannot be used; the message names the setting.
    """
    unknown = sorted(set(values) - set(AtariSettings.model_fields))
    if unknown:
        raise ConfigurationError(
            f"The reset of an Atari game does not know {', '.join(map(repr, unknown))}. It takes seed, episode_id, "
            f"task_seed, {', '.join(AtariSettings.model_fields)}."
        )
    given = {name: value for name, value in values.items() if value is not None}
    if base is not None:
        if not given:
            return base
        given = {**base.model_dump(), **given}
    try:
        return AtariSettings.model_validate(given)
    except ValidationError as error:
        wrong = "; ".join(dict.fromkeys(_complaint(each, given) for each in error.errors()))
        raise ConfigurationError(f"The Atari environment's settings cannot be used: {wrong}.") from error


def _complaint(error: Any, given: Mapping[str, Any]) -> str:
    text = error["msg"].removeprefix("Value error, ")
    if not error["loc"]:
        return text
    name = str(error["loc"][0])
    if name in _EXPECTED and error["type"] != "value_error":
        # pydantic has one complaint for each form that the value could have.
        return f"{name}: {_EXPECTED[name]} is needed, not {repr(given.get(name))[:80]}"
    return f"{name}: {text}"


def settings_from_variables(variables: Mapping[str, str]) -> AtariSettings:
    """The settings that environment variables give (`ENVIRONMENT_VARIABLES`).

    Raises:
        ConfigurationError: A value that cannot be used.
    """
    return settings_from(
        {setting: variables[name] for name, setting in ENVIRONMENT_VARIABLES.items() if variables.get(name)}
    )
