"""Values that fit a JSON Schema, drawn by a seeded generator.

It knows what pydantic's schemas are made of: objects, arrays, strings, numbers with bounds, booleans, null, enums,
constants, unions and references. It does not know patterns, formats and custom validators: a value may therefore be
refused, and an author helps with ``examples`` in the field, which are preferred to anything made up.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from typing import Any, cast

Schema = Mapping[str, Any]

_WORDS = ("a", "go", "yes", "left", "hello", "42", "answer", "open the door", "print(1)", "Ünïcödé")
_SPAN = 9  # how far numbers go beyond the one bound that a schema gives
_DEPTH = 6  # a schema that contains itself is cut off here


def sample(schema: Schema, generator: random.Random) -> Any:
    """Draw one value that fits a schema.

    Args:
        schema: A JSON Schema as pydantic writes it, with its definitions under ``$defs``.
        generator: Where the randomness comes from; equal states give equal values.

    Returns:
        What `json.loads` could have returned.

    Example:
        >>> sample({"type": "integer", "minimum": 3, "maximum": 3}, random.Random(0))
        3
    """
    return _Sampler(cast("Schema", schema.get("$defs", {})), generator).value(schema, 0)


class _Sampler:
    def __init__(self, definitions: Schema, generator: random.Random) -> None:
        self._definitions = definitions
        self._generator = generator

    def value(self, schema: Schema, depth: int) -> Any:
        if "$ref" in schema:
            return self.value(self._definitions[schema["$ref"].rsplit("/", 1)[-1]], depth + 1)
        if "const" in schema:
            return schema["const"]
        for listed in ("enum", "examples"):
            if schema.get(listed):
                return self._generator.choice(cast("Sequence[Any]", schema[listed]))
        for union in ("anyOf", "oneOf"):
            if union in schema:
                return self._from_union(schema[union], depth)
        if "allOf" in schema:
            merged = {key: value for key, value in schema.items() if key != "allOf"}
            for part in schema["allOf"]:
                merged |= part
            return self.value(merged, depth + 1)
        return self._from_type(schema, depth)

    def _from_union(self, options: Sequence[Schema], depth: int) -> Any:
        flat = [option for option in options if not {"$ref", "items", "properties"} & set(option)]
        return self.value(self._generator.choice(flat if depth > _DEPTH and flat else options), depth + 1)

    def _from_type(self, schema: Schema, depth: int) -> Any:
        kind = schema.get("type", "object" if "properties" in schema else "string")
        if isinstance(kind, list):
            kind = self._generator.choice(cast("list[str]", kind))
        match kind:
            case "object":
                return self._object(schema, depth)
            case "array":
                return self._array(schema, depth)
            case "integer":
                return self._integer(schema)
            case "number":
                return self._number(schema)
            case "boolean":
                return self._generator.random() < 0.5
            case "null":
                return None
            case _:
                return self._string(schema)

    def _object(self, schema: Schema, depth: int) -> dict[str, Any]:
        required = schema.get("required", ())
        chosen = {
            name: field
            for name, field in cast("dict[str, Schema]", schema.get("properties", {})).items()
            if name in required or (depth <= _DEPTH and self._generator.random() < 0.5)
        }
        return {name: self.value(field, depth + 1) for name, field in chosen.items()}

    def _array(self, schema: Schema, depth: int) -> list[Any]:
        fixed = [self.value(item, depth + 1) for item in schema.get("prefixItems", ())]
        fewest = schema.get("minItems", 0)
        most = schema.get("maxItems", max(3, fewest) if "items" in schema else len(fixed))
        length = fewest if depth > _DEPTH else self._generator.randint(fewest, max(fewest, min(most, fewest + 3)))
        items = schema.get("items", {})
        values: list[Any] = fixed
        for _ in range(20 * length):
            if len(values) >= length:
                break
            value = self.value(cast("Schema", items if isinstance(items, Mapping) else {}), depth + 1)
            if not schema.get("uniqueItems") or value not in values:
                values.append(value)
        return values

    def _integer(self, schema: Schema) -> int:
        low, high = _bounds(schema)
        least = math.floor(low) + 1 if "exclusiveMinimum" in schema else math.ceil(low)
        most = math.ceil(high) - 1 if "exclusiveMaximum" in schema else math.floor(high)
        unit = int(schema.get("multipleOf", 1))
        return unit * self._generator.randint(-(-least // unit), max(-(-least // unit), most // unit))

    def _number(self, schema: Schema) -> float:
        low, high = _bounds(schema)
        # Away from the ends, which may be exclusive.
        return low + (high - low) * self._generator.uniform(0.01, 0.99)

    def _string(self, schema: Schema) -> str:
        text = self._generator.choice(_WORDS)
        text += "x" * (schema.get("minLength", 0) - len(text))
        return text[: schema.get("maxLength", len(text))]


def _bounds(schema: Schema) -> tuple[float, float]:
    low = schema.get("minimum", schema.get("exclusiveMinimum"))
    high = schema.get("maximum", schema.get("exclusiveMaximum"))
    if low is None and high is None:
        return 0, _SPAN
    if low is None:
        return cast("float", high) - _SPAN, cast("float", high)
    return cast("float", low), cast("float", low) + _SPAN if high is None else cast("float", high)
