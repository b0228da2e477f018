"""What the player does, what it sees, and what the trainer sees of an Atari game.

The fields' names and wire shapes are those of the public OpenEnv package's Atari environment, so that its clients talk
to this server and this client to its servers. On the server a screen is a numpy array: the OpenEnv wire sends it as the
list of integers that the public package sends, the native wire as bytes of the screen's own size. Ours are ``message``
and ``image``: the same in words and as a PNG, for language models.

Source: ``atari_env`` of the OpenEnv package, version 0.10.0, for the names.
"""

from __future__ import annotations

import base64
import io
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, WithJsonSchema

from openenv_trl.types import Action, Observation, State
from openenv_trl.wire.byte_text import bytes_of_text

_PNG_URL = "data:image/png;base64,"
_MOST_STACKED = 16  # RAMs of so many steps, and no picture with so few lines


class AtariAction(Action):
    """One joystick position, held for the step's frames."""

    action_id: int = Field(description='A number out of legal_actions; metadata["action_meanings"] has its name.')
    """Which one: an index into the actions that the observation's ``metadata["action_meanings"]`` names."""
    game_name: str = Field(default="pong", description="Without effect: the server decides the game.")
    """Taken for the public package's clients, which send it, and ignored: the server decides the game."""
    obs_type: Literal["rgb", "grayscale", "ram"] = Field(
        default="rgb", description="Without effect: reset decides what is observed."
    )
    """Taken for the public package's clients, and ignored: ``reset`` decides what is observed."""
    full_action_space: bool = Field(default=False, description="Without effect: reset decides it.")
    """Taken for the public package's clients, and ignored: ``reset`` decides it."""


class AtariObservation(Observation):
    """The screen, in the form that the episode was begun with, and what ALE says beside it."""

    screen: Annotated[Any, WithJsonSchema({"type": "array", "items": {"type": "integer"}})] = Field(
        default_factory=list[int]
    )
    """The pixels or the RAM, flattened: numbers from 0 to 255. A numpy array in process and on the native wire, a list
    on the OpenEnv wire; empty where the screen is in words or a PNG. `pixels` gives it its shape."""
    screen_shape: list[int] = Field(default_factory=lambda: [0])
    """The shape of ``screen``: (height, width, 3) for "rgb", (height, width) for "grayscale", (128,) for "ram"; with
    the number of screens before it where they are stacked."""
    legal_actions: list[int]
    """Numbers of the actions: all of them, always."""
    lives: int = 0
    """Lives that are left, as ALE counts them; 0 in games without lives."""
    episode_frame_number: int = 0
    """Frames of the episode so far, no-ops at its start included."""
    frame_number: int = 0
    """The same number: the console is switched on anew for every episode."""
    message: str = ""
    """The screen in words: what a language model reads."""
    image: bytes | str | None = None
    """The screen as a PNG: bytes where "png" is observed, a data URL where "data_url" is, else None."""

    def pixels(self) -> NDArray[np.uint8]:
        """The screen as an array in its own shape, whichever wire it came over."""
        return np.asarray(self.screen, dtype=np.uint8).reshape(self.screen_shape)

    def png(self) -> bytes | None:
        """The screen as the bytes of a PNG file, whichever wire it came over: the ``image``, or made of the pixels.

        Of stacked screens it is the newest. None where neither is there: with "ram" and "text", and after ``act``
        where pixels are observed.
        """
        if isinstance(self.image, str):
            if self.image.startswith(_PNG_URL):
                return base64.b64decode(self.image[len(_PNG_URL) :])
            return bytes_of_text(self.image)
        if self.image is not None:
            return self.image
        shape = self.screen_shape
        colored = len(shape) in (3, 4) and shape[-1] == 3
        is_ram = shape[-1] == 128 and (len(shape) == 1 or (len(shape) == 2 and shape[0] <= _MOST_STACKED))
        if is_ram or len(shape) < 2:
            return None
        from PIL import Image  # here, since most clients never ask for it

        stacked = len(shape) == (4 if colored else 3)
        buffer = io.BytesIO()
        Image.fromarray(self.pixels()[-1] if stacked else self.pixels()).save(buffer, "PNG")
        return buffer.getvalue()

    def __eq__(self, other: object) -> bool:
        # pydantic's own would ask an array for its truth.
        if not isinstance(other, AtariObservation):
            return NotImplemented
        mine, theirs = dict(self), dict(other)
        return np.array_equal(mine.pop("screen"), theirs.pop("screen")) and mine == theirs


class AtariState(State):
    """Which game is played and how, and what it takes to play it again."""

    game_name: str = "pong"
    """The game, as ALE names its ROM."""
    obs_type: str = "rgb"
    """What is observed: "rgb", "grayscale", "ram", "png", "data_url" or "text"."""
    full_action_space: bool = False
    """Whether all 18 actions are legal, or only those that the game has a use for."""
    mode: int | None = None
    """The game's mode; None for its default."""
    difficulty: int | None = None
    """The game's difficulty; None for its default."""
    repeat_action_probability: float = 0.0
    """How likely, in each frame, the last action is repeated in place of the agent's."""
    frameskip: int | tuple[int, int] = 4
    """Frames that an action is held for; of a range, the last number left out."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """All settings of the episode, by name."""
    seed: int | None = None
    """The seed of the episode: as given to ``reset``, or drawn from the operating system's entropy."""
    task_seed: int | None = None
    """The seed of the number of no-ops at its start, where one was given."""
