"""How a Gymnasium environment is acted in beside ``step``: the tool, and the hooks of quick environments.

Those hooks run on the server's event loop. Made, which may take milliseconds, such an environment is in a thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from openenv_trl.environment import tool
from openenv_trl.gymnasium import wording
from openenv_trl.gymnasium.by_space import AnySpace
from openenv_trl.gymnasium.recipe import Recipe
from openenv_trl.gymnasium.space_field import SpaceField


async def reset_on_loop(self: Any, seed: int | None = None, episode_id: str | None = None, **kwargs: Any) -> Any:
    """``reset_async`` of a quick environment."""
    return self.reset(seed=seed, episode_id=episode_id, **kwargs)


async def step_on_loop(self: Any, action: Any, timeout_s: float | None = None, **kwargs: Any) -> Any:
    """``step_async`` of a quick environment."""
    return self.step(action, timeout_s=timeout_s, **kwargs)


def tool_of(
    recipe: Recipe, space: AnySpace, observed: type[Any], meanings: Sequence[str], *, asynchronous: bool
) -> Any:
    """Return the method that is the environment's tool.

    Args:
        recipe: The environment's recipe.
        space: The action space.
        observed: The class of observations.
        meanings: What the numbers of a Discrete mean.
        asynchronous: Whether the tool runs on the server's event loop.
    """

    def act_here(self: Any, action: Any) -> Any:
        return self._act(action)

    async def act_on_loop(self: Any, action: Any) -> Any:
        return self._act(action)

    act = act_on_loop if asynchronous else act_here
    # The names stand in the schema already where the tool takes them.
    description = wording.tool_description(recipe.name, space, () if recipe.action_names else meanings)
    field = SpaceField(space, "action", bounded=True, names=recipe.action_names)
    act.__annotations__ = {"action": field.annotation, "return": observed}
    return tool(name=recipe.tool_name, description=description)(act)
