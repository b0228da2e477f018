"""Where a value holds a number that JSON has no word for."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, cast

_DEPTH = 20  # levels that are looked into: a number below them is hardly meant to be seen


def place_of_lost_number(value: Any, at: str, depth: int = _DEPTH) -> str | None:
    """Return where the first NaN or infinity stands, such as ``observation.scores[2]``; None where there is none."""
    if isinstance(value, float):
        return None if math.isfinite(value) else at
    if depth == 0 or isinstance(value, (str, bytes, bytearray, memoryview)):
        return None
    if isinstance(value, Mapping):
        inner = ((f"{at}.{key}", item) for key, item in cast("Mapping[Any, Any]", value).items())
    else:
        as_list = getattr(value, "tolist", None)
        items = as_list() if callable(as_list) else value
        if not isinstance(items, (list, tuple)):
            return place_of_lost_number(items, at, 0) if isinstance(items, float) else None
        inner = ((f"{at}[{index}]", item) for index, item in enumerate(cast("list[Any]", items)))
    return next((found for place, item in inner if (found := place_of_lost_number(item, place, depth - 1))), None)
