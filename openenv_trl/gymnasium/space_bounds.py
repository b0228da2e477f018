"""Whether a value lies within a space, and where it does not: words for whoever has to choose another one."""

from __future__ import annotations

from typing import Any

import numpy

from openenv_trl.gymnasium.by_space import AnySpace, BySpace, spaces
from openenv_trl.gymnasium.space_values import SpaceValueError, shortened


def require_within(space: AnySpace, value: Any, at: str) -> None:
    """See to it that a space contains a value, which `read_value` has read.

    Raises:
        SpaceValueError: It does not; the text says where in the value, and what would be right there.

    Example:
        >>> require_within(spaces.Discrete(2), 5, "action")
        Traceback (most recent call last):
        ...
        openenv_trl.gymnasium.space_values.SpaceValueError: action=5 is outside of Discrete(2): give an integer from 0 to 1.
    """  # noqa: E501 - as Python prints it
    if not space.contains(value):
        raise SpaceValueError(_complaint(space, value, at) or f"{at}={shortened(value)} is no value of {space}.")


def _complaint(space: AnySpace, value: Any, at: str) -> str | None:
    return _JUDGES(space)(space, value, at)


def _graph(space: Any, value: Any, at: str) -> str | None:
    return None if space.contains(value) else f"{at} is no value of {space}."


def _discrete(space: Any, value: Any, at: str) -> str | None:
    first, last = int(space.start), int(space.start) + int(space.n) - 1
    if first <= value <= last:
        return None
    return f"{at}={value} is outside of {space}: give an integer from {first} to {last}."


def _box(space: Any, value: Any, at: str) -> str | None:
    return _array_complaint(space.low, space.high, value, at)


def _multi_discrete(space: Any, value: Any, at: str) -> str | None:
    return _array_complaint(space.start, space.start + space.nvec - 1, value, at)


def _multi_binary(space: Any, value: Any, at: str) -> str | None:
    return _array_complaint(numpy.zeros(value.shape, value.dtype), numpy.ones(value.shape, value.dtype), value, at)


def _text(space: Any, value: Any, at: str) -> str | None:
    if not space.min_length <= len(value) <= space.max_length:
        return f"{at} has {len(value)} characters: give {space.min_length} to {space.max_length}."
    strange = sorted(set(value) - set(space.character_set))
    return f"{at} has the character {strange[0]!r}: use only {shortened(space.characters)}." if strange else None


def _dict(space: Any, value: Any, at: str) -> str | None:
    return _first(_complaint(inner, value[key], f"{at}.{key}") for key, inner in space.spaces.items())


def _tuple(space: Any, value: Any, at: str) -> str | None:
    pairs = enumerate(zip(space.spaces, value, strict=True))
    return _first(_complaint(inner, item, f"{at}[{index}]") for index, (inner, item) in pairs)


def _sequence(space: Any, value: Any, at: str) -> str | None:
    if space.stack:
        return None
    return _first(_complaint(space.feature_space, item, f"{at}[{index}]") for index, item in enumerate(value))


def _one_of(space: Any, value: Any, at: str) -> str | None:
    index, item = value
    return _complaint(space.spaces[index], item, f"{at}[1]")


def _first(complaints: Any) -> str | None:
    return next((each for each in complaints if each is not None), None)


def _array_complaint(low: Any, high: Any, array: Any, at: str) -> str | None:
    outside = numpy.argwhere(~((array >= low) & (array <= high)))  # of NaN both are false
    if not len(outside):
        return None
    place = tuple(outside[0].tolist())
    where = f"{at}[{']['.join(map(str, place))}]" if place else at
    least, most = low[place].item(), high[place].item()
    return f"{where}={array[place].item()} is out of bounds: give a number from {least} to {most}."


_JUDGES = BySpace(
    {
        spaces.Discrete: _discrete,
        spaces.Graph: _graph,
        spaces.Box: _box,
        spaces.MultiDiscrete: _multi_discrete,
        spaces.MultiBinary: _multi_binary,
        spaces.Text: _text,
        spaces.Dict: _dict,
        spaces.Tuple: _tuple,
        spaces.Sequence: _sequence,
        spaces.OneOf: _one_of,
    }
)
