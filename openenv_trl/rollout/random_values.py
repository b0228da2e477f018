"""Random values that fit a JSON Schema, for policies without a model: uniform where the choice is finite.

What tools' schemas use is kept to: types, enums, constants, bounds, lengths, counts, distinct items, choices,
references, and schemas merged by ``allOf``. Patterns and formats of strings are not: a string is a few random letters.

Source: the validation vocabulary of JSON Schema 2020-12, and the boolean ``exclusiveMinimum`` of draft 4.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from typing import Any, cast

from openenv_trl.errors import ConfigurationError

Schema = Mapping[str, Any]

_RANGE = 10  # the width of a range that has one end or none
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_TRIES = 100  # for distinct items


def random_value(schema: Any, generator: random.Random, root: Schema) -> Any:
    """A value that fits.

    Args:
        schema: Of the value; True, or anything that is no schema, fits everything.
        generator: Draws.
        root: The whole schema, where references lead.

    Raises:
        ConfigurationError: The schema is of a type that JSON Schema has not, or nothing fits it.
    """
    schema = resolved(schema, root)
    choices = list(schema.get("anyOf") or schema.get("oneOf") or [])
    if choices:
        return random_value(generator.choice(choices), generator, root)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return generator.choice(schema["enum"])
    kind = schema.get("type", "object" if "properties" in schema else "string")
    if isinstance(kind, list):
        kind = generator.choice(cast("list[str]", kind))
    if kind == "integer":
        return _integer(schema, generator)
    if kind == "number":
        return _number(schema, generator)
    if kind == "boolean":
        return generator.random() < 0.5
    if kind == "null":
        return None
    if kind == "string":
        most = schema.get("maxLength", math.inf)
        return "".join(generator.choices(_LETTERS, k=int(min(max(5, schema.get("minLength", 0)), most))))
    if kind == "array":
        return _array(schema, generator, root)
    if kind == "object":
        fields: Schema = schema.get("properties", {})
        return {name: random_value(fields.get(name, {}), generator, root) for name in schema.get("required", [])}
    raise ConfigurationError(f"No random value of the JSON Schema type '{kind}' can be drawn.")


def resolved(schema: Any, root: Schema) -> Schema:
    """The schema with its reference followed and what ``allOf`` holds merged into it."""
    if not isinstance(schema, Mapping):
        return {}  # JSON Schema's true: anything fits
    schema = cast("Schema", schema)
    reference = schema.get("$ref")
    if isinstance(reference, str):
        found: Any = root.get("$defs", {}).get(reference.rsplit("/", 1)[-1], {})
        beside = {key: value for key, value in schema.items() if key != "$ref"}
        return {**resolved(found, root), **beside}
    if "allOf" not in schema:
        return schema
    merged: dict[str, Any] = {}
    for part in [*cast("list[Any]", schema["allOf"]), {key: schema[key] for key in schema if key != "allOf"}]:
        for key, value in resolved(part, root).items():
            if key == "properties" and key in merged:
                merged[key] = {**merged[key], **value}
            elif key == "required" and key in merged:
                merged[key] = list(dict.fromkeys([*merged[key], *value]))
            else:
                merged[key] = value
    return merged


def _bounds(schema: Schema) -> tuple[float, bool, float, bool]:
    """The least and the greatest number, and for each whether it is itself left out."""
    low, low_out = schema.get("minimum"), False
    high, high_out = schema.get("maximum"), False
    above, below = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
    if isinstance(above, bool):
        low_out = above
    elif above is not None and (low is None or above >= low):
        low, low_out = above, True
    if isinstance(below, bool):
        high_out = below
    elif below is not None and (high is None or below <= high):
        high, high_out = below, True
    if low is None:
        low = 0 if high is None or high >= 0 else high - _RANGE
    if high is None:
        high = low + _RANGE
    return low, low_out, high, high_out


def _integer(schema: Schema, generator: random.Random) -> int:
    low, low_out, high, high_out = _bounds(schema)
    step = schema.get("multipleOf", 1)
    first = math.floor(low / step) + 1 if low_out else math.ceil(low / step)
    last = math.ceil(high / step) - 1 if high_out else math.floor(high / step)
    if last < first and "maximum" not in schema and "exclusiveMaximum" not in schema:
        last = first + _RANGE
    if last < first:
        raise ConfigurationError(f"No whole number fits the JSON Schema {dict(schema)!r:.200}.")
    return int(generator.randint(first, last) * step)


def _number(schema: Schema, generator: random.Random) -> float:
    if "multipleOf" in schema:
        return _integer(schema, generator)
    low, low_out, high, high_out = _bounds(schema)
    for _ in range(_TRIES):
        value = min(max(generator.uniform(low, high), low), high)
        if not (low_out and value == low) and not (high_out and value == high):
            return value
    raise ConfigurationError(f"No number fits the JSON Schema {dict(schema)!r:.200}.")


def _array(schema: Schema, generator: random.Random, root: Schema) -> list[Any]:
    least = int(schema.get("minItems", min(1, schema.get("maxItems", 1))))
    first: list[Any] = schema.get("prefixItems") or []
    items: list[Any] = []
    for _ in range(_TRIES + least):
        if len(items) >= least:
            break
        place = len(items)
        of = first[place] if place < len(first) else schema.get("items", {})
        item = random_value(of, generator, root)
        if not schema.get("uniqueItems") or item not in items:
            items.append(item)
    return items
