"""What travels."""

from enum import Enum

from openenv.core.env_server import Action, Observation, State
from pydantic import Field


class Move(str, Enum):
    """Where to."""

    UP = "up"
    DOWN = "down"
    LEFT = "left"
    RIGHT = "right"


class GridAction(Action):
    """One move."""

    move: Move
    strides: int = Field(default=1, ge=1, le=3)


class GridObservation(Observation):
    """Where one stands, and where one wants to be."""

    position: list[int]
    goal: list[int]
    message: str = ""


class GridState(State):
    """The size of the grid."""

    size: int = 4
