"""From an environment's tools to functions that a trainer takes for methods someone wrote.

A trainer finds tools as functions of a class, and makes their JSON Schema of type hints and docstring. `tool_function`
makes such a function of a tool. Hints say less than JSON Schema can: no fields of nested objects, bounds or defaults.
So the trainer is handed, where the two differ, a `ToolDefinition`: the server's own schema, which can be called.
"""

from __future__ import annotations

import inspect
import keyword
import re
from collections.abc import Callable, Mapping
from typing import Any, Literal, Union, cast

from openenv_trl.rollout.json_text import json_text
from openenv_trl.rollout.tool_schema import Schema, tool_definition
from openenv_trl.types import Tool

ToolMethod = Callable[..., Any]

_SCALARS: dict[str, Any] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "null": None,
    "object": dict,
}
_HEADING = re.compile(r"^(\s*)(Args|Returns|Raises):", re.MULTILINE)
_WORD = re.compile(r"\w+")
_MAX_DEPTH = 16


class ToolDefinition(dict[str, Any]):
    """A tool as chat templates take it, ``{"type": "function", "function": {...}}``, which can be called too.

    Args:
        definition: The definition, exactly as it is to be rendered.
        method: What is called.
    """

    def __init__(self, definition: Mapping[str, Any], method: ToolMethod) -> None:
        super().__init__(definition)
        self._method = method
        self.__name__: str = method.__name__
        self.__doc__ = method.__doc__
        self.__annotations__ = dict(method.__annotations__)
        self.__signature__ = inspect.signature(method)

    def __call__(self, /, **arguments: Any) -> Any:
        """Call the tool."""
        return self._method(**arguments)

    def __deepcopy__(self, memo: dict[int, Any]) -> ToolDefinition:
        return self  # nobody changes it, and what it calls is one environment

    def __reduce__(self) -> Any:
        return dict, (dict(self),)


def tool_function(tool: Tool, call: Callable[[Any, str, dict[str, Any]], str]) -> Any:
    """A function, to be a method of a class, that stands for a tool.

    Args:
        tool: The tool.
        call: Called with the instance, the tool's name and the arguments.

    Returns:
        A function with the tool's ``__name__``, a Google-style ``__doc__``, ``__annotations__`` and ``__signature__``.
        It takes any named arguments, whatever its signature says: what is wrong with them is for ``call`` to tell.
    """
    properties: Schema = tool.input_schema.get("properties") or {}
    required: list[str] = list(tool.input_schema.get("required") or ())
    # transformers finds no description of an argument whose name is not of word characters.
    hints = {name: _hint(schema, tool.input_schema) for name, schema in properties.items() if _WORD.fullmatch(name)}

    def method(instance: Any, /, **arguments: Any) -> str:
        return call(instance, tool.name, arguments)

    parameters = [inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)]
    for name in sorted(hints, key=lambda name: name not in required):
        if name.isidentifier() and not keyword.iskeyword(name) and name != "self":
            default = inspect.Parameter.empty if name in required else _default(properties[name])
            parameters.append(
                inspect.Parameter(
                    name,
                    inspect.Parameter.KEYWORD_ONLY,
                    annotation=hints[name],
                    default=default,
                )
            )
    function: Any = method
    function.__name__ = tool.name
    function.__qualname__ = f"Environment.{tool.name}"
    function.__doc__ = _docstring(tool)
    function.__annotations__ = hints
    function.__signature__ = inspect.Signature(parameters)
    return function


def renders_exactly(tool: Tool, method: ToolMethod) -> bool:
    """Whether transformers makes of the bound method the very definition that the tool has."""
    from transformers.utils import chat_template_utils
    from transformers.utils.chat_template_utils import DocstringParsingException, TypeHintParsingException

    render: Callable[[ToolMethod], dict[str, Any]] = cast("Any", chat_template_utils).get_json_schema
    try:
        return render(method) == tool_definition(tool)
    except (DocstringParsingException, TypeHintParsingException, ValueError, TypeError, KeyError):
        return False


def attribute_name(tool: Tool) -> str:
    """The name of the method that stands for a tool: the tool's own where a trainer lets it be called so.

    A trainer calls tools by their function's ``__name__``, which stays the tool's own in any case.
    """
    hidden = tool.name.startswith("_") or tool.name in ("reset", "get_reward")
    return f"tool_{tool.name}" if hidden else tool.name


def _hint(schema: Any, root: Schema, depth: int = 0) -> Any:
    """The type hint that says of a JSON Schema what hints can say."""
    if not isinstance(schema, Mapping) or depth > _MAX_DEPTH:
        return Any
    schema = cast("Schema", schema)
    reference = schema.get("$ref")
    if isinstance(reference, str):
        return _hint(root.get("$defs", {}).get(reference.rsplit("/", 1)[-1]), root, depth + 1)
    values: Any = [schema["const"]] if "const" in schema else schema.get("enum")
    if isinstance(values, list) and values:
        values = cast("list[Any]", values)
        scalar = all(value is None or type(value) in (str, int, float, bool) for value in values)
        return Literal[tuple(values)] if scalar else Any
    choices: Any = schema.get("anyOf") or schema.get("oneOf")
    if isinstance(choices, list) and choices:
        return _union([_hint(choice, root, depth + 1) for choice in cast("list[Any]", choices)])
    kind: Any = schema.get("type")
    if isinstance(kind, list) and kind:
        return _union([_hint({**schema, "type": each}, root, depth + 1) for each in cast("list[Any]", kind)])
    if kind == "array":
        items: Any = schema.get("items")
        return list[_hint(items, root, depth + 1)] if isinstance(items, Mapping) and items else list
    if kind == "object":
        values = schema.get("additionalProperties")
        return dict[str, _hint(values, root, depth + 1)] if isinstance(values, Mapping) and values else dict
    return _SCALARS.get(kind, Any) if isinstance(kind, str) else Any


def _union(hints: list[Any]) -> Any:
    return Union[tuple(hints)]  # noqa: UP007 (of as many as there are)


def _default(schema: Any) -> Any:
    return cast("Schema", schema).get("default") if isinstance(schema, Mapping) else None


def _docstring(tool: Tool) -> str:
    """Google style, as transformers reads it; headings inside a description would end it, and lose their colon."""
    properties: Schema = tool.input_schema.get("properties") or {}
    lines = [_plain(tool.description) or f"Call {tool.name}."]
    if properties:
        lines += ["", "Args:"]
    for name, schema in properties.items():
        fields: Schema = cast("Schema", schema) if isinstance(schema, Mapping) else dict[str, Any]()
        text = " ".join(_plain(str(fields.get("description") or "")).split()) or f"The {name.replace('_', ' ')}."
        if "properties" in fields or "$ref" in fields:
            text += f" JSON Schema: {json_text(_inlined(fields, tool.input_schema))}"
        lines.append(f"    {name}: {text}")
    return "\n".join(lines)


def _inlined(schema: Schema, root: Schema) -> Any:
    reference = schema.get("$ref")
    if not isinstance(reference, str):
        return schema
    return root.get("$defs", {}).get(reference.rsplit("/", 1)[-1], {})


def _plain(text: str) -> str:
    return _HEADING.sub(r"\1\2 -", text).strip()
