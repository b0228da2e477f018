"""What travels."""

from openenv.core.env_server.types import Action, Observation
from pydantic import Field


class TextAction(Action):
    """What the player says."""

    message: str = Field(..., min_length=1)


class TextObservation(Observation):
    """What the game says."""

    prompt: str = ""
    turn: int = 0
