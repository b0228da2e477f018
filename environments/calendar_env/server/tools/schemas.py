"""Tools' schemas as models are shown them: in one piece, and without what only pydantic needs.

A chat template prints a schema into the prompt as it is. References, titles, and "or null" for what may be left out
would cost half of the prompt and tell nothing.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, Field

Method = TypeVar("Method", bound=Callable[..., Any])


def with_fields_of(fields: type[BaseModel]) -> Callable[[Method], Method]:
    """Give a method, in place of its ``**body``, a parameter for each field of a model.

    Args:
        fields: The model. Each of its fields becomes a keyword argument with the field's type and description.
    """

    def spread(method: Method) -> Method:
        signature = inspect.signature(method, eval_str=True)
        own = [each for each in signature.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
        added = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty if info.is_required() else None,
                annotation=Annotated[info.annotation, Field(description=info.description)],
            )
            for name, info in fields.model_fields.items()
        ]
        method.__signature__ = signature.replace(parameters=[*own, *added])  # type: ignore[attr-defined]
        return method

    return spread


def readable(schema: dict[str, Any]) -> dict[str, Any]:
    """A tool's schema, in one piece and short.

    Args:
        schema: The JSON Schema that pydantic makes of the tool's arguments.
    """
    definitions = schema.get("$defs", {})
    shown = _readable({name: value for name, value in schema.items() if name != "$defs"}, definitions)
    assert isinstance(shown, dict)
    return shown


def _readable(value: Any, definitions: dict[str, Any]) -> Any:
    if isinstance(value, list):
        return [_readable(entry, definitions) for entry in value]
    if not isinstance(value, dict):
        return value
    if "$ref" in value:
        target = definitions[value["$ref"].rpartition("/")[2]]
        return _readable({**target, **{key: item for key, item in value.items() if key != "$ref"}}, definitions)
    branches = [branch for branch in value.get("anyOf", []) if branch != {"type": "null"}]
    if len(branches) == 1:
        rest = {key: item for key, item in value.items() if key not in ("anyOf", "default")}
        return _readable({**branches[0], **rest}, definitions)
    if "properties" in value:
        value = {**value, "properties": {n: _readable(v, definitions) for n, v in value["properties"].items()}}
        value.pop("description", None)
        value.pop("title", None)
        return value
    left_out = ("title",) if value.get("default", ...) is not None else ("title", "default")
    return {key: _readable(item, definitions) for key, item in value.items() if key not in left_out}
