"""What the environments and their clients exchange."""

from __future__ import annotations

from typing import Any

from openenv.core.env_server.types import Action, Observation


class EchoAction(Action):
    """Something to say."""

    message: str


class EchoObservation(Observation):
    """What was said."""

    echo: str


class FrameAction(Action):
    """A button of a game console."""

    button: int


class FrameObservation(Observation):
    """A screen of 210 x 160 pixels in three colours, as a list of 100,800 numbers."""

    pixels: list[int]


class ArrayObservation(Observation):
    """The same as a numpy array."""

    pixels: Any
