"""Gymnasium spaces for what a JSON Schema describes: for servers that know nothing of Gymnasium.

Numbers become Box and Discrete, choices Discrete, truth values Discrete(2), text a Text of any characters, arrays
Box, Tuple or Sequence, objects Dict, unions OneOf. What has no bounds, as an object of any keys, has no space.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import gymnasium.spaces
import numpy

from openenv_trl.gymnasium.by_space import AnySpace, spaces
from openenv_trl.gymnasium.space_values import SpaceValueError, read_value, shortened

Schema = Mapping[str, Any]

_MOST_CHOICES = 10_000  # of bounded integers, to be a Discrete
_LONGEST_TEXT = 1_000_000
_DEEPEST = 20
_LEAST, _MOST = -(2**63), 2**63 - 2
_NO_WORDS = {"title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "$comment"}


class NoSpaceError(ValueError):
    """A schema, or a part of one, that no space describes; the text says which part and why."""


class AnyText(gymnasium.spaces.Text):
    """Text of whatever characters, up to a length; it samples letters and digits.

    Args:
        max_length: The most characters.
        min_length: The fewest.
        sampled_length: The most characters of a sample.
    """

    def __init__(self, max_length: int = _LONGEST_TEXT, *, min_length: int = 0, sampled_length: int = 20) -> None:
        super().__init__(max(min(max_length, sampled_length), min_length, 1), min_length=min_length)
        self.longest = max_length

    def contains(self, x: Any) -> bool:
        """Whether it is a text of a length that is allowed."""
        return isinstance(x, str) and self.min_length <= len(x) <= self.longest

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AnyText) and (self.min_length, self.longest) == (other.min_length, other.longest)

    def __hash__(self) -> int:
        return hash((self.min_length, self.longest))

    def __repr__(self) -> str:
        return f"AnyText({self.min_length}, {self.longest})"


@dataclass(frozen=True)
class SchemaSpace:
    """A space, and how its values are written where the schema holds.

    Attributes:
        space: The space.
        read: From what travelled to a value of the space.
        write: From a value of the space to what travels.
        is_number: Whether a Discrete's values are the numbers that travel.
    """

    space: AnySpace
    read: Callable[[Any], Any]
    write: Callable[[Any], Any]
    is_number: bool = False


def space_of_schema(schema: Schema, at: str, *, acts: bool) -> SchemaSpace:
    """Return the space that a JSON Schema describes.

    Args:
        schema: The schema, with its definitions under ``$defs``.
        at: What to call it in errors.
        acts: Whether its values are to be chosen, and not only seen: then every number needs its bounds.

    Raises:
        NoSpaceError: There is none.
    """
    return _Deriving(cast("Schema", schema.get("$defs", {})), acts).space(schema, at, 0)


class _Deriving:
    def __init__(self, definitions: Schema, acts: bool) -> None:
        self._definitions = definitions
        self._acts = acts

    def space(self, schema: Schema, at: str, depth: int) -> SchemaSpace:
        if depth > _DEEPEST:
            raise NoSpaceError(f"{at} holds itself")
        if "$ref" in schema:
            return self.space(self._definitions[schema["$ref"].rpartition("/")[2]], at, depth + 1)
        if len(schema.get("allOf", ())) == 1:
            return self.space(schema["allOf"][0], at, depth + 1)
        if "const" in schema:
            return _choice([schema["const"]])
        if "enum" in schema:
            return _choice(cast("Sequence[Any]", schema["enum"]))
        for union in ("anyOf", "oneOf"):
            if union in schema:
                return self._union(schema[union], at, depth)
        kind = schema.get("type")
        if isinstance(kind, list):
            return self._union([{**schema, "type": each} for each in cast("list[str]", kind)], at, depth)
        derive = {
            "null": lambda: _choice([None]),
            "boolean": lambda: _choice([False, True]),
            "integer": lambda: self._integer(schema, at),
            "number": lambda: self._number(schema, at),
            "string": lambda: _text(schema),
            "array": lambda: self._array(schema, at, depth),
            "object": lambda: self._object(schema, at, depth),
        }.get(kind if isinstance(kind, str) else "")
        if derive is None:
            raise NoSpaceError(f"{at} may be anything, as far as its schema says")
        return derive()

    def _integer(self, schema: Schema, at: str) -> SchemaSpace:
        low, high = _bounds(schema, 1)
        if math.isfinite(low) and math.isfinite(high) and high - low < _MOST_CHOICES:
            space = spaces.Discrete(int(high - low) + 1, start=int(low))
            return SchemaSpace(space, lambda value: read_value(space, value, at), int, is_number=True)
        self._require_bounds(low, high, at)
        least = int(low) if math.isfinite(low) else _LEAST
        most = int(high) if math.isfinite(high) else _MOST
        return _numbers(spaces.Box(least, most, (), numpy.int64), at)

    def _number(self, schema: Schema, at: str) -> SchemaSpace:
        low, high = _bounds(schema, 0)
        self._require_bounds(low, high, at)
        return _numbers(spaces.Box(low, high, (), numpy.float64), at)

    def _require_bounds(self, low: float, high: float, at: str) -> None:
        if self._acts and not (math.isfinite(low) and math.isfinite(high)):
            raise NoSpaceError(f"{at} is a number without bounds (its schema has no minimum or no maximum)")

    def _array(self, schema: Schema, at: str, depth: int) -> SchemaSpace:
        fixed = [
            self.space(item, f"{at}[{index}]", depth + 1) for index, item in enumerate(schema.get("prefixItems", ()))
        ]
        fewest, most = schema.get("minItems", 0), schema.get("maxItems")
        if fixed and (most == len(fixed) or "items" not in schema or schema["items"] is False):
            return _row(fixed, at)
        if fixed or not isinstance(schema.get("items"), Mapping):
            raise NoSpaceError(f"{at} is an array of anything, as far as its schema says")
        item = self.space(schema["items"], f"{at}[]", depth + 1)
        if most is not None and most == fewest:
            return _of_one_length(item, most, at)
        space = spaces.Sequence(item.space)
        return SchemaSpace(
            space,
            lambda value: tuple(item.read(each) for each in _list(value, at)),
            lambda value: [item.write(each) for each in value],
        )

    def _object(self, schema: Schema, at: str, depth: int) -> SchemaSpace:
        properties = cast("Mapping[str, Schema]", schema.get("properties", {}))
        if not properties:
            raise NoSpaceError(f"{at} is an object of any keys, as far as its schema says")
        return dict_space({key: self.space(each, f"{at}.{key}", depth + 1) for key, each in properties.items()}, at)

    def _union(self, options: Sequence[Schema], at: str, depth: int) -> SchemaSpace:
        derived = [self.space(option, at, depth + 1) for option in options]
        if len(derived) == 1:
            return derived[0]

        def read(value: Any) -> Any:
            for index, option in enumerate(derived):
                try:
                    found = option.read(value)
                except SpaceValueError:
                    continue
                if option.space.contains(found):
                    return index, found
            raise SpaceValueError(f"{at}={shortened(value)} is of none of the kinds that its schema allows.")

        space = spaces.OneOf([option.space for option in derived])
        return SchemaSpace(space, read, lambda value: derived[int(value[0])].write(value[1]))


def dict_space(parts: Mapping[str, SchemaSpace], at: str) -> SchemaSpace:
    """Return the space of objects with these parts."""
    space = spaces.Dict({key: part.space for key, part in parts.items()})

    def read(value: Any) -> Any:
        if not isinstance(value, Mapping):
            raise SpaceValueError(f"{at}={shortened(value)} is no object.")
        given = cast("Mapping[str, Any]", value)
        missing = [key for key in parts if key not in given]
        if missing:
            raise SpaceValueError(f"{at} has no {', '.join(map(repr, missing))}, which its schema promises.")
        return {key: parts[key].read(given[key]) for key in space.spaces}  # pyright: ignore

    return SchemaSpace(space, read, lambda value: {key: part.write(value[key]) for key, part in parts.items()})


def _choice(values: Sequence[Any]) -> SchemaSpace:
    def read(value: Any) -> Any:
        for index, each in enumerate(values):
            if each == value and isinstance(each, bool) == isinstance(value, bool):
                return index
        raise SpaceValueError(f"{shortened(value)} is none of {shortened(list(values))}.")

    space = spaces.Discrete(len(values))
    return SchemaSpace(space, read, lambda index: values[int(index)])


def _numbers(space: Any, at: str) -> SchemaSpace:
    def write(value: Any) -> Any:
        return numpy.asarray(value).tolist()

    return SchemaSpace(space, lambda value: read_value(space, value, at), write)


def _text(schema: Schema) -> SchemaSpace:
    longest = schema.get("maxLength", _LONGEST_TEXT)
    space = cast("AnySpace", AnyText(longest, min_length=schema.get("minLength", 0)))
    return SchemaSpace(space, lambda value: read_value(space, value, "text"), str)


def _row(items: Sequence[SchemaSpace], at: str) -> SchemaSpace:
    def read(value: Any) -> Any:
        given = _list(value, at)
        if len(given) != len(items):
            raise SpaceValueError(f"{at} has {len(given)} items, and its schema promises {len(items)}.")
        return tuple(item.read(each) for item, each in zip(items, given, strict=True))

    space = spaces.Tuple([item.space for item in items])
    return SchemaSpace(space, read, lambda value: [item.write(each) for item, each in zip(items, value, strict=True)])


def _of_one_length(item: SchemaSpace, length: int, at: str) -> SchemaSpace:
    """Numbers are an array; all else is a row of so many."""
    inner: Any = item.space
    if isinstance(inner, spaces.Discrete) and item.is_number:
        low, high = int(inner.start), int(inner.start) + int(inner.n) - 1
        inner = spaces.Box(low, high, (), numpy.int64)
    if not isinstance(inner, spaces.Box):
        return _row([item] * length, at)
    shape = (length, *inner.shape)
    low, high = numpy.broadcast_to(inner.low, shape), numpy.broadcast_to(inner.high, shape)
    return _numbers(spaces.Box(low, high, shape, inner.dtype), at)


def _bounds(schema: Schema, unit: int) -> tuple[float, float]:
    low, high = schema.get("minimum", -math.inf), schema.get("maximum", math.inf)
    if "exclusiveMinimum" in schema:
        low = max(low, math.floor(schema["exclusiveMinimum"]) + 1 if unit else schema["exclusiveMinimum"])
    if "exclusiveMaximum" in schema:
        high = min(high, math.ceil(schema["exclusiveMaximum"]) - 1 if unit else schema["exclusiveMaximum"])
    return low, high


def _list(value: Any, at: str) -> list[Any]:
    if isinstance(value, (list, tuple, numpy.ndarray)):
        return list(cast("list[Any]", value))
    raise SpaceValueError(f"{at}={shortened(value)} is no list.")
