"""JSON of the wire: compact, exact, and never in doubt about what was lost.

What JSON can say goes out and comes back as it was: integers of any size that Python's own parser takes, and lone
surrogates (escaped). NaN and the infinities go out as ``null``, as JSON has no word for them. What each kind of Python
value becomes is told by `openenv_trl.wire.json_values`, and in docs/serialisation.md. orjson writes all of it where it
can; where it cannot, only the branch in question is written here.
"""

from __future__ import annotations

import json
from typing import Any, cast

import pydantic_core

from openenv_trl.wire.json_values import write
from openenv_trl.wire.slow_json import MAX_DEPTH, write_slowly


def encode(value: Any, *, at: str = "") -> bytes:
    """Return the value as compact JSON.

    Args:
        value: What to write.
        at: The value's own name in errors.

    Raises:
        TypeError: The value holds something that JSON cannot express; the text says where, and what to send instead.
    """
    try:
        return write(value)
    except TypeError:
        return write_slowly(value, at)


def decode(text: str | bytes) -> Any:
    """Return what the JSON text says.

    Raises:
        json.JSONDecodeError: The text is not JSON, with the words of Python's own parser.
    """
    try:
        return pydantic_core.from_json(text)
    except ValueError:
        # Python's parser takes a little more (lone surrogates, deeper nesting), and its words are the
        # wire's words.
        try:
            value = json.loads(text)
            if _is_deep(value):
                raise json.JSONDecodeError("Nested too deeply", "", 0)
            return value
        except RecursionError:
            raise json.JSONDecodeError("Nested too deeply", "", 0) from None
        except json.JSONDecodeError:
            raise
        except UnicodeDecodeError:
            raise json.JSONDecodeError("Not UTF-8", "", 0) from None
        except ValueError as error:  # an integer of more digits than Python converts
            raise json.JSONDecodeError(str(error), "", 0) from None


def _is_deep(value: Any) -> bool:
    """Whether it is nested more deeply than can be written again. Does not recurse."""
    layer = [value]
    for _ in range(MAX_DEPTH + 1):
        layer = [inner for outer in layer for inner in _inside(outer)]
        if not layer:
            return False
    return True


def _inside(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(cast("dict[str, Any]", value).values())
    return cast("list[Any]", value) if isinstance(value, list) else []
