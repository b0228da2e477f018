"""The JSON Schema of a space's values, as they travel: what a model, a form or another program is shown of them."""

from __future__ import annotations

import copy
import math
import re
from typing import Any

import numpy

from openenv_trl.gymnasium.by_space import AnySpace, BySpace, spaces
from openenv_trl.gymnasium.space_values import write_value
from openenv_trl.wire.json_values import json_list

_MOST_LISTED = 64
"""Numbers of a Discrete are listed up to so many, and elements of an array described one by one."""
_MOST_CHARACTERS = 200  # of a text, to be told as a pattern


def schema_of_space(space: AnySpace) -> dict[str, Any]:
    """Return the JSON Schema of a space's values.

    Example:
        >>> schema_of_space(spaces.Discrete(2))
        {'type': 'integer', 'enum': [0, 1]}
    """
    return _SCHEMAS(space)(space)


def _discrete(space: Any) -> dict[str, Any]:
    return _integers(int(space.start), int(space.start) + int(space.n) - 1)


def _multi_discrete(space: Any) -> dict[str, Any]:
    return _array(space.start, space.start + space.nvec - 1, "integer")


def _multi_binary(space: Any) -> dict[str, Any]:
    return _array(numpy.zeros(space.shape, numpy.int8), numpy.ones(space.shape, numpy.int8), "integer")


def _box(space: Any) -> dict[str, Any]:
    kind = {"b": "boolean", "f": "number"}.get(numpy.dtype(space.dtype).kind, "integer")
    return _array(space.low, space.high, kind)


def _text(space: Any) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string", "minLength": space.min_length, "maxLength": space.max_length}
    if len(space.character_list) <= _MOST_CHARACTERS:
        schema["pattern"] = f"^[{''.join(re.escape(each) for each in space.character_list)}]*$"
    return schema | _example(space)


def _dict(space: Any) -> dict[str, Any]:
    properties = {key: schema_of_space(inner) for key, inner in space.spaces.items()}
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def _tuple(space: Any) -> dict[str, Any]:
    return _row([schema_of_space(inner) for inner in space.spaces])


def _sequence(space: Any) -> dict[str, Any]:
    return {"type": "array", "items": schema_of_space(space.feature_space)}


def _graph(space: Any) -> dict[str, Any]:
    edges = {"type": "null"} if space.edge_space is None else _or_null(schema_of_space(space.edge_space))
    links = _or_null({"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 2, "maxItems": 2})
    properties = {
        "nodes": {"type": "array", "items": schema_of_space(space.node_space)},
        "edges": edges,
        "edge_links": links,
    }
    schema = {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}
    return schema | _example(space)


def _one_of(space: Any) -> dict[str, Any]:
    return {"anyOf": [_row([{"const": index}, schema_of_space(inner)]) for index, inner in enumerate(space.spaces)]}


def _integers(first: int, last: int) -> dict[str, Any]:
    if last - first < _MOST_LISTED:
        return {"type": "integer", "enum": list(range(first, last + 1))}
    return {"type": "integer", "minimum": first, "maximum": last}


def _array(low: Any, high: Any, kind: str) -> dict[str, Any]:
    """Of arrays of the shape of their bounds."""
    if low.ndim == 0:
        return _number(_written(low), _written(high), kind)
    same = low.size == 0 or ((low == low.flat[0]).all() and (high == high.flat[0]).all())
    if same or low.size > _MOST_LISTED:
        least, most = (_written(low.min()), _written(high.max())) if low.size else (0, 0)
        schema = _number(least, most, kind)
        for length in reversed(low.shape):
            schema = {"type": "array", "items": schema, "minItems": length, "maxItems": length}
        return schema
    return _row(
        [_array(each_low, each_high, kind) for each_low, each_high in zip(_rows(low), _rows(high), strict=True)]
    )


def _written(bound: Any) -> Any:
    """The number as JSON has it: with float32's digits where elements have those, or they would pass their bound."""
    short = bound.dtype.kind == "f" and bound.dtype.itemsize < 8
    return float(str(numpy.float32(bound))) if short else bound.item()


def _rows(array: Any) -> list[Any]:
    return [numpy.asarray(array[index]) for index in range(len(array))]


def _number(low: Any, high: Any, kind: str) -> dict[str, Any]:
    if kind == "boolean":
        return {"type": "boolean"}
    schema: dict[str, Any] = {"type": kind}
    if math.isfinite(low):
        schema["minimum"] = low
    if math.isfinite(high):
        schema["maximum"] = high
    return schema


def _row(items: list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}


def _or_null(item: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [{"type": "array", "items": item}, {"type": "null"}]}


def _example(space: AnySpace) -> dict[str, Any]:
    # Always the same one: a schema does not change from process to process.
    seeded = copy.deepcopy(space)
    seeded.seed(0)
    written: Any = write_value(space, seeded.sample())
    return {"examples": [json_list(written)]}


_SCHEMAS = BySpace(
    {
        spaces.Discrete: _discrete,
        spaces.MultiDiscrete: _multi_discrete,
        spaces.MultiBinary: _multi_binary,
        spaces.Box: _box,
        spaces.Text: _text,
        spaces.Dict: _dict,
        spaces.Tuple: _tuple,
        spaces.Sequence: _sequence,
        spaces.Graph: _graph,
        spaces.OneOf: _one_of,
    }
)
