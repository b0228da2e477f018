"""What a trainer's model can call: the environment's tools, or what its action schema makes of them.

An environment without tools is offered as one tool "act" with the fields of its action; where its action is one of
several types, told apart by a field with a fixed value, as one tool for each type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from openenv_trl.errors import ConfigurationError
from openenv_trl.rollout.actions import MAX_ARGUMENT_DEPTH, call_tool_action
from openenv_trl.rollout.json_text import deeper_than
from openenv_trl.rollout.tool_schema import Schema, argument_problem, tools_from_schema
from openenv_trl.types import Tool

AsStep = Callable[[str, dict[str, Any]], dict[str, Any]]


@dataclass(frozen=True)
class ActionTools:
    """Tools, and how a call of one goes out as a step.

    Attributes:
        tools: What is offered.
        as_step: Makes a step's action of a tool's name and arguments that fit it.
    """

    tools: tuple[Tool, ...]
    as_step: AsStep = call_tool_action

    def __post_init__(self) -> None:
        names = [tool.name for tool in self.tools]
        if len(set(names)) < len(names):
            raise ConfigurationError(f"Two tools have one name: {names}.")

    @classmethod
    def of_text(cls) -> ActionTools:
        """None: what a model does is read from its text, and goes out as it was read."""
        return cls(())

    @classmethod
    def from_schema(cls, action_schema: Schema) -> ActionTools:
        """The tools of an environment that offers none, from the JSON Schema of its action."""
        variants = _variants(action_schema)
        if not variants:
            return cls(tuple(tools_from_schema(action_schema)), lambda _, arguments: dict(arguments))
        tools: list[Tool] = []
        fixed: dict[str, dict[str, Any]] = {}
        for field, value, schema in variants:
            [act] = tools_from_schema({**schema, "$defs": action_schema.get("$defs", {})})
            fields = dict(act.input_schema)
            fields["properties"] = {name: each for name, each in fields["properties"].items() if name != field}
            fields["required"] = [name for name in fields["required"] if name != field]
            if "$ref" not in repr(fields["properties"]):
                fields.pop("$defs", None)
            tools.append(Tool(name=value, description=act.description, input_schema=fields))
            fixed[value] = {field: value}
        return cls(tuple(tools), lambda name, arguments: {**fixed[name], **arguments})

    def step_of(self, name: str, arguments: Any) -> tuple[dict[str, Any] | None, str]:
        """The action that a call stands for; or None, and what is wrong with the call, as the model is told."""
        tool = next((tool for tool in self.tools if tool.name == name), None)
        if tool is None:
            known = ", ".join(tool.name for tool in self.tools)
            return None, f"Error: there is no tool '{name:.80}'. The tools are: {known}."
        if deeper_than(arguments, MAX_ARGUMENT_DEPTH):
            return None, f"Error: the arguments are nested more than {MAX_ARGUMENT_DEPTH} levels deep."
        problem = argument_problem(tool, arguments)
        if problem is not None:
            return None, f"Error: {problem}."
        return self.as_step(name, arguments), ""


def _variants(schema: Schema) -> list[tuple[str, str, Schema]]:
    """For each type of action: the field that tells it, its value there, its schema. Empty where there is one type."""
    choices: Any = schema.get("oneOf") or schema.get("anyOf")
    if not isinstance(choices, list):
        return []
    found: list[tuple[str, str, Schema]] = []
    for choice in cast("list[Any]", choices):
        resolved = _resolved(choice, schema)
        properties: Schema = resolved.get("properties") or {}
        told = [
            (name, str(value))
            for name, field in properties.items()
            if isinstance(field, Mapping) and isinstance(value := cast("Schema", field).get("const"), str)
        ]
        if len(told) != 1:
            return []
        found.append((*told[0], resolved))
    fields, values = {field for field, _, _ in found}, {value for _, value, _ in found}
    return found if len(fields) == 1 and len(values) == len(found) else []


def _resolved(choice: Any, root: Schema) -> Schema:
    if not isinstance(choice, Mapping):
        return {}
    schema = cast("Schema", choice)
    reference = schema.get("$ref")
    if not isinstance(reference, str):
        return schema
    return root.get("$defs", {}).get(reference.rsplit("/", 1)[-1], {})
