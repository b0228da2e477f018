"""The joystick as a tool: which positions a game has, and how the tool ``act`` tells a model of them."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from atari_env.server.console import SHELF
from openenv_trl.types import Tool


@functools.lru_cache(maxsize=256)
def action_names(game: str, full_action_space: bool) -> tuple[str, ...]:
    """The names of a game's actions, by their number.

    Args:
        game: Its name.
        full_action_space: Whether all 18 positions count, or only those that the game has a use for.
    """
    console = SHELF.take(game)
    try:
        return tuple(each.name for each in (console.all_actions if full_action_space else console.minimal_actions))
    finally:
        SHELF.give_back(console)


def act_tool(bound: Tool, names: Sequence[str], max_repeat: int) -> Tool:
    """The tool with what its arguments can be here.

    Args:
        bound: The tool as the class's method makes it.
        names: The actions that there are.
        max_repeat: Steps of one call at most.
    """
    schema = dict(bound.input_schema)
    schema["properties"] = {
        "action": {"type": "string", "enum": list(names)},
        "repeat": {"type": "integer", "minimum": 1, "maximum": max_repeat, "default": 1},
    }
    return bound.model_copy(update={"input_schema": schema})
