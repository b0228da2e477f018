"""Tools and their JSON Schemas: made from an action's schema, checked against, sampled from."""

from __future__ import annotations

import random
from typing import Any

from openenv_trl.types import Tool

ACT_TOOL_NAME = "act"
"""The name of the one tool that stands for a whole action schema."""


def tools_from_schema(
    action_schema: dict[str, Any], *, description: str = "Act in the environment."
) -> list[Tool]:
    """One tool, named "act", whose arguments are the fields of an action (all but ``metadata``).

    Args:
        action_schema: The JSON Schema of the environment's action, as ``GET /schema`` gives it under
            ``action``.
        description: What the model reads about the tool, where the schema has no description of its own.
    """
    raise NotImplementedError


def tool_definition(tool: Tool) -> dict[str, Any]:
    """The tool as chat templates take it: ``{"type": "function", "function": {...}}``."""
    raise NotImplementedError


def argument_problem(tool: Tool, arguments: Any) -> str | None:
    """What is wrong with the arguments of a call, in a sentence for the model; None if nothing is.

    Looks at required and unknown names, at types, and at ``enum`` and ``const``: what models get wrong. The
    environment judges the rest.
    """
    raise NotImplementedError


def random_arguments(tool: Tool, generator: random.Random) -> dict[str, Any]:
    """Valid arguments, drawn uniformly where the choice is finite and from a small range where it is not."""
    raise NotImplementedError
