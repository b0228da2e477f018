"""Whether a value lies within a space, and where it does not: words for whoever has to choose another one."""

from __future__ import annotations

import functools
from typing import Any

import numpy
from gymnasium import spaces

from openenv_trl.gymnasium.space_json import AnySpace
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
        raise SpaceValueError(complaint(space, value, at) or f"{at}={shortened(value)} is no value of {space}.")


@functools.singledispatch
def complaint(space: Any, value: Any, at: str) -> str | None:
    """Return what is wrong with a value of the right form; None where nothing is found."""
    return None if space.contains(value) else f"{at}={shortened(value)} is no value of {space}."


@complaint.register
def _(space: spaces.Discrete, value: Any, at: str) -> str | None:
    first, last = int(space.start), int(space.start) + int(space.n) - 1
    if first <= value <= last:
        return None
    return f"{at}={value} is outside of {space}: give an integer from {first} to {last}."


@complaint.register
def _(space: spaces.Box, value: Any, at: str) -> str | None:
    return _array_complaint(space.low, space.high, value, at)


@complaint.register
def _(space: spaces.MultiDiscrete, value: Any, at: str) -> str | None:
    return _array_complaint(space.start, space.start + space.nvec - 1, value, at)


@complaint.register
def _(space: spaces.MultiBinary, value: Any, at: str) -> str | None:
    return _array_complaint(numpy.zeros(value.shape, value.dtype), numpy.ones(value.shape, value.dtype), value, at)


@complaint.register
def _(space: spaces.Text, value: Any, at: str) -> str | None:
    if not space.min_length <= len(value) <= space.max_length:
        return f"{at} has {len(value)} characters: give {space.min_length} to {space.max_length}."
    strange = sorted(set(value) - set(space.character_set))
    return f"{at} has the character {strange[0]!r}: use only {shortened(space.characters)}." if strange else None


@complaint.register
def _(space: spaces.Dict, value: Any, at: str) -> str | None:
    return _first(complaint(inner, value[key], f"{at}.{key}") for key, inner in space.spaces.items())


@complaint.register
def _(space: spaces.Tuple, value: Any, at: str) -> str | None:
    pairs = enumerate(zip(space.spaces, value, strict=True))
    return _first(complaint(inner, item, f"{at}[{index}]") for index, (inner, item) in pairs)


@complaint.register
def _(space: spaces.Sequence, value: Any, at: str) -> str | None:
    if space.stack:
        return None
    return _first(complaint(space.feature_space, item, f"{at}[{index}]") for index, item in enumerate(value))


@complaint.register
def _(space: spaces.OneOf, value: Any, at: str) -> str | None:
    index, item = value
    return complaint(space.spaces[index], item, f"{at}[1]")


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
