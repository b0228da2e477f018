"""What an environment tells in ``info``, as something that can be sent: no info ever costs a step."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

import numpy

_PLAIN = (type(None), bool, int, float, str, bytes)
_PLACE = re.compile(r" at 0x[0-9a-fA-F]+")
_LONGEST_TEXT = 500
_DEEPEST = 50


def sendable(value: Any, depth: int = 0) -> Any:
    """Return the value with numbers, text, arrays, lists and dicts as they are, and all else in words.

    Example:
        >>> sendable({"prob": 0.5, "agent": object()})["prob"]
        0.5
    """
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, (numpy.ndarray, numpy.generic)):
        array = cast("Any", value)
        if array.dtype.kind in "biuf":
            return array
        return sendable(array.tolist(), depth + 1) if array.dtype.kind in "OUS" else _in_words(array)
    if depth >= _DEEPEST:
        return _in_words(value)
    if isinstance(value, Mapping):
        items = cast("Mapping[Any, Any]", value).items()
        return {str(key): sendable(item, depth + 1) for key, item in items}
    if isinstance(value, (set, frozenset)):  # in an order that is the same in every process
        return [sendable(item, depth + 1) for item in sorted(cast("set[Any]", value), key=_in_words)]
    if isinstance(value, (list, tuple)):
        return [sendable(item, depth + 1) for item in cast("list[Any]", value)]
    return _in_words(value)


def owned(value: Any) -> Any:
    """Return what was received with arrays that can be written to and belong to nobody else."""
    if isinstance(value, numpy.ndarray):
        return cast("Any", value).copy()
    if isinstance(value, dict):
        return {key: owned(item) for key, item in cast("dict[Any, Any]", value).items()}
    return [owned(item) for item in cast("list[Any]", value)] if isinstance(value, list) else value


def _in_words(value: Any) -> str:
    # Without the places in memory that Python's own words for objects have: equal episodes are told alike.
    return _PLACE.sub("", repr(value))[:_LONGEST_TEXT]
