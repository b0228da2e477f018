"""JSON of whatever was played: never raises, and is read back as it was.

Values are written as the wire writes them (`openenv_trl.wire.codec`): arrays as lists, dates as ISO text, and never as
Python's own words for them. What the wire refuses takes a slower way here, on which only what no reader would take
either is changed: what lies deeper than `MAX_DEPTH` is cut.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any, cast

from openenv_trl.wire import codec

MAX_DEPTH = 150
"""Levels of nesting that are kept on the slower way: few enough for every reader's stack."""

_CUT = "..."
_MAX_INTEGER_BITS = 14_000  # Python refuses to write longer ones in decimal digits
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def json_text(value: Any) -> str:
    """The value as compact JSON in text that UTF-8 can encode.

    NaN and the infinities are null, and objects that not even the wire has a word for are written as ``str`` gives
    them.
    """
    try:
        return codec.encode(value).decode()
    except (TypeError, RecursionError):
        text = json.dumps(_plain(value, MAX_DEPTH), ensure_ascii=False, separators=(",", ":"))
        return _LONE_SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def deeper_than(value: Any, levels: int) -> bool:
    """Whether lists and dicts lie in each other over more than so many levels. Does not recurse."""
    layer = [value]
    for _ in range(levels + 1):
        layer = [inner for outer in layer for inner in _inside(outer)]
        if not layer:
            return False
    return True


def _inside(value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        return list(cast("Mapping[Any, Any]", value).values())
    return list(cast("list[Any]", value)) if isinstance(value, (list, tuple)) else []


def _plain(value: Any, levels: int) -> Any:
    """The value in what the standard library's JSON can write."""
    if value is None or isinstance(value, (str, bool)):
        return value
    if isinstance(value, int):
        return int(value) if value.bit_length() <= _MAX_INTEGER_BITS else hex(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if not isinstance(value, (Mapping, list, tuple)):
        return _as_on_the_wire(value)
    if not levels:
        return _CUT
    if isinstance(value, Mapping):
        items = cast("Mapping[Any, Any]", value).items()
        return {key if isinstance(key, str) else _foreign(key): _plain(inner, levels - 1) for key, inner in items}
    return [_plain(inner, levels - 1) for inner in cast("list[Any]", value)]


def _as_on_the_wire(value: Any) -> Any:
    try:
        return codec.decode(codec.encode(value))
    except Exception:  # boundary: the object may be anyone's
        return _foreign(value)


def _foreign(value: Any) -> str:
    try:
        return str(value)
    except Exception:  # boundary: the object may be anyone's, and so its words
        return f"<{type(value).__name__}>"
