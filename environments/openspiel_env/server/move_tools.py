"""A game's tools: one for each move where moves have words of their own, else ``play`` with the move as text.

They are asynchronous like the hooks: a server calls them on its event loop, without a thread.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from openenv_trl.environment import tool
from openenv_trl.types import Tool
from openspiel_env.models import OpenSpielObservation
from openspiel_env.server.games import Game
from openspiel_env.server.moves import MOVE_TOOLS, fixed_move_id, listed_moves

_PLAY = "Make a move: one of those that the last message names, as it is named there."


class Mover(Protocol):
    """What the tools need of an environment."""

    async def make_move_async(self, action: int | None, called: str) -> OpenSpielObservation:
        """Make the move of that number; None where what the agent said names no legal move."""
        ...

    def read(self, move: str) -> int | None:
        """The number of the legal move that a text names."""
        ...


def tools_of(game_name: str) -> dict[str, Callable[..., Any]]:
    """The methods that are a game's tools, by the names of attributes."""
    words = MOVE_TOOLS.get(game_name)
    if words is None:
        return {"play": _play}
    return {f"move_{word}": _move_tool(game_name, word, text) for word, text in words.items()}


def with_moves_listed(tools: Sequence[Tool], game: Game) -> list[Tool]:
    """The tools, with the moves that ``play`` takes in its schema where they are few and never change."""
    moves = listed_moves(game) if any(each.name == "play" for each in tools) else None
    if moves is None:
        return list(tools)
    schema = {
        "type": "object",
        "properties": {"move": {"type": "string", "enum": list(moves)}},
        "required": ["move"],
        "additionalProperties": False,
    }
    return [each.model_copy(update={"input_schema": schema}) if each.name == "play" else each for each in tools]


def _move_tool(game_name: str, word: str, description: str) -> Callable[[Mover], Awaitable[OpenSpielObservation]]:
    action = fixed_move_id(game_name, word)

    @tool(name=word, description=description)
    async def move(self: Mover) -> OpenSpielObservation:
        return await self.make_move_async(action, f"'{word}'")

    return move


# Any text, though the schema may list the moves: a move is also read in other case, and by its number.
@tool(name="play", description=_PLAY)
async def _play(self: Mover, move: str) -> OpenSpielObservation:
    return await self.make_move_async(self.read(move), f"'{move:.80}'")
