"""JSON of the wire: compact, exact, and never in doubt about what was lost.

Integers of any size come back as they were sent (orjson alone reads those beyond 64 bits as floats). NaN
and the infinities go out as ``null``, as JSON has no word for them. Array values (numpy's and whatever else
offers ``tolist``) go out as lists. All else is as ``pydantic_core.to_json`` writes it.
"""

from __future__ import annotations

import json
from typing import Any

import orjson
import pydantic_core

_OPTIONS = orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_SERIALIZE_NUMPY


def encode(value: Any) -> bytes:
    """Return the value as compact JSON.

    Raises:
        TypeError: The value holds something that JSON cannot express; the text names its type.
    """
    try:
        return orjson.dumps(value, option=_OPTIONS)
    except TypeError:
        return _encode_slowly(value)


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
            return json.loads(text)
        except RecursionError:
            raise json.JSONDecodeError("Nested too deeply", "", 0) from None
        except json.JSONDecodeError:
            raise
        except UnicodeDecodeError:
            raise json.JSONDecodeError("Not UTF-8", "", 0) from None
        except ValueError as error:  # an integer of more digits than Python converts
            raise json.JSONDecodeError(str(error), "", 0) from None


def _encode_slowly(value: Any) -> bytes:
    try:
        return pydantic_core.to_json(value, inf_nan_mode="null", fallback=_as_list)
    except ValueError as error:
        text = str(error).removeprefix("Error serializing to JSON: ").removeprefix("TypeError: ")
        raise TypeError(text) from None


def _as_list(value: Any) -> Any:
    as_list = getattr(value, "tolist", None)
    if as_list is None:
        raise TypeError(f"Unable to serialize unknown type: {type(value)}")
    return as_list()
