"""Tools and their JSON Schemas: made from an action's schema, checked against, sampled from.

Only what models get wrong is checked here, so that the model is told at once and the environment is not troubled; the
environment validates actions in full.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, cast

from openenv_trl.rollout.random_values import random_value, resolved
from openenv_trl.types import Tool

Schema = Mapping[str, Any]

ACT_TOOL_NAME = "act"
"""The name of the one tool that stands for a whole action schema."""

_PYTHON_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list, tuple),
    "object": (dict,),
    "null": (type(None),),
}

_PYTHON_WORDS = {"True": True, "False": False, "None": None}


def tools_from_schema(action_schema: Schema, *, description: str = "Act in the environment.") -> list[Tool]:
    """One tool, named "act", whose arguments are the fields of an action (all but ``metadata``).

    Args:
        action_schema: The JSON Schema of the environment's action, as ``GET /schema`` gives it under ``action``.
        description: What the model reads about the tool, where the schema has no description of its own.
    """
    hidden = ("metadata",)
    properties: Schema = action_schema.get("properties", {})
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {name: _without_title(field) for name, field in properties.items() if name not in hidden},
        "required": [name for name in action_schema.get("required", []) if name not in hidden],
        "additionalProperties": False,
    }
    if "$defs" in action_schema:
        schema["$defs"] = action_schema["$defs"]
    text = action_schema.get("description") or description
    return [Tool(name=ACT_TOOL_NAME, description=str(text).split("\n\n")[0], input_schema=schema)]


def tool_definition(tool: Tool) -> dict[str, Any]:
    """The tool as chat templates take it: ``{"type": "function", "function": {...}}``."""
    parameters = tool.input_schema or {"type": "object", "properties": {}}
    return {
        "type": "function",
        "function": {"name": tool.name, "description": tool.description, "parameters": parameters},
    }


def argument_problem(tool: Tool, arguments: Any) -> str | None:
    """What is wrong with the arguments of a call, in a sentence for the model; None if nothing is.

    Looks at required and unknown names, at types, and at ``enum`` and ``const``. The environment judges the rest.
    """
    if not isinstance(arguments, dict):
        return f"the arguments of '{tool.name}' must be a JSON object, not {_kind(arguments)}"
    given = cast("dict[str, Any]", arguments)
    properties: Schema = tool.input_schema.get("properties") or {}
    required: list[str] = tool.input_schema.get("required") or []
    missing = [name for name in required if name not in given]
    if missing:
        return f"'{tool.name}' needs {_names(missing)}"
    if tool.input_schema.get("additionalProperties", False) is False:
        unknown = [name for name in given if name not in properties]
        if unknown:
            return f"'{tool.name}' has no {_names(unknown)}; it takes {_names(properties) or 'no arguments'}"
    for name, value in given.items():
        if name in properties and not _fits(properties[name], value, tool.input_schema):
            return (
                f"'{name}' of '{tool.name}' must be {_wanted(properties[name], tool.input_schema)}, not {value!r:.80}"
            )
    return None


def read_python_words(tool: Tool, arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments with Python's words for true, false and null read as what they say, where no text is asked for.

    Some chat templates (LFM2's, Qwen3.5's) write them so, and response parsers then give them back as texts.
    """
    properties: Schema = tool.input_schema.get("properties") or {}

    def read(name: str, value: Any) -> Any:
        if not isinstance(value, str) or value not in _PYTHON_WORDS or name not in properties:
            return value
        meant = _PYTHON_WORDS[value]
        schema: Schema = properties[name]
        return (
            meant if _fits(schema, meant, tool.input_schema) and not _fits(schema, value, tool.input_schema) else value
        )

    return {name: read(name, value) for name, value in arguments.items()}


def random_arguments(tool: Tool, generator: random.Random) -> dict[str, Any]:
    """Valid arguments, drawn uniformly where the choice is finite and from a small range where it is not.

    Optional arguments are left out. See `openenv_trl.rollout.random_values`.

    Raises:
        ConfigurationError: Nothing fits the schema.
    """
    properties: Schema = tool.input_schema.get("properties", {})
    required: list[str] = tool.input_schema.get("required", [])
    return {name: random_value(properties.get(name, {}), generator, tool.input_schema) for name in required}


def _choices(schema: Schema) -> list[Schema]:
    return list(schema.get("anyOf") or schema.get("oneOf") or [])


def _fits(schema: Schema, value: Any, root: Schema) -> bool:
    schema = resolved(schema, root)
    choices = _choices(schema)
    if choices:
        return any(_fits(choice, value, root) for choice in choices)
    if "const" in schema:
        return value == schema["const"]
    if "enum" in schema:
        return value in schema["enum"]
    wanted = schema.get("type")
    if wanted is None:
        return True
    names = [wanted] if isinstance(wanted, str) else list(wanted)
    if isinstance(value, bool):
        return "boolean" in names
    if isinstance(value, float) and value.is_integer() and "integer" in names:
        return True
    return any(isinstance(value, _PYTHON_TYPES.get(name, (object,))) for name in names)


def _wanted(schema: Schema, root: Schema) -> str:
    schema = resolved(schema, root)
    choices = _choices(schema)
    if choices:
        return " or ".join(_wanted(choice, root) for choice in choices)
    if "const" in schema:
        return repr(schema["const"])
    if "enum" in schema:
        return "one of " + ", ".join(repr(value) for value in schema["enum"])
    return f"of type {schema.get('type', 'any')}"


def _without_title(field: Schema) -> dict[str, Any]:
    return {key: value for key, value in field.items() if key != "title"}


def _names(names: Any) -> str:
    return ", ".join(f"'{name}'" for name in names)


def _kind(value: Any) -> str:
    return next((name for name, types in _PYTHON_TYPES.items() if isinstance(value, types)), "that")
