"""What each kind of Python value is in JSON, where JSON has no such kind itself.

`replacement` turns one value into a simpler one; what that holds in turn is left to the writer, which asks again. So
arrays reach orjson as they are, and nothing is copied that need not be. No library is imported for the sake of its
values: where numpy is not loaded, nothing can be of numpy.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from collections import deque
from collections.abc import Iterator, KeysView, Mapping, ValuesView
from enum import Enum
from typing import Any, cast

import orjson
import pydantic_core
from pydantic import BaseModel

from openenv_trl.wire.byte_text import text_of_bytes
from openenv_trl.wire.model_values import dump_model

_OPTIONS = orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_DATACLASS
_OPTIONS_WITH_NUMPY = (
    _OPTIONS | orjson.OPT_SERIALIZE_NUMPY
)  # which has orjson import numpy when it meets what it knows not
_modules = sys.modules


def write(value: Any) -> bytes:
    """Return the value as compact JSON, by orjson.

    Raises:
        TypeError: orjson does not write it: another writer may.
    """
    return orjson.dumps(value, replacement, _OPTIONS_WITH_NUMPY if "numpy" in _modules else _OPTIONS)


def replacement(value: Any) -> Any:
    """Return a simpler value that stands for this one in JSON.

    Raises:
        TypeError: Nothing can; the text names the type and what to send instead.
    """
    if isinstance(value, (bytes, bytearray, memoryview)):
        return text_of_bytes(bytes(cast("bytes", value)))
    if isinstance(value, BaseModel):
        return dump_model(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, (set, frozenset)):
        return _in_order(cast("set[Any]", value))
    if isinstance(value, (tuple, deque, range, Iterator, KeysView, ValuesView)):
        return list(cast("Iterator[Any]", value))
    if isinstance(value, Mapping):
        return dict(cast("Mapping[Any, Any]", value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _of_dataclass(value)
    numpy = _modules.get("numpy")
    if numpy is not None and isinstance(value, (numpy.ndarray, numpy.generic)):
        return _of_numpy(value, numpy)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, os.PathLike):
        return os.fspath(cast("os.PathLike[str]", value))
    if type(value).__module__ == "ipaddress":
        return str(value)
    as_list = getattr(value, "tolist", None)
    if callable(as_list):  # tensors and arrays of other libraries
        return as_list()
    try:
        return pydantic_core.to_jsonable_python(value)  # times, decimals, patterns, URLs, secrets
    except Exception:  # boundary: whatever it says of an unknown object, the words below say it better
        raise TypeError(_refusal(value)) from None


def json_list(value: Any) -> Any:
    """Return the value as lists, dicts, texts and numbers: for a writer that knows no others.

    Raises:
        TypeError: As `replacement`; or a value that only the slow writer takes.
    """
    return orjson.loads(write(value))


def _in_order(values: set[Any] | frozenset[Any]) -> list[Any]:
    """A set in an order that does not change from process to process."""
    kinds: set[type] = set(map(type, values))
    if kinds == {str} or kinds <= {int, float, bool}:
        return sorted(values)
    return sorted(values, key=_sort_key)


def _sort_key(value: Any) -> tuple[str, bytes]:
    try:
        text = write(value)
    except TypeError:
        text = repr(value).encode(errors="replace")
    return type(value).__name__, text


def _of_dataclass(value: Any) -> Any:
    serializer = getattr(value, "__pydantic_serializer__", None)
    if serializer is not None:
        return serializer.to_python(value)
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}


def _of_numpy(value: Any, numpy: Any) -> Any:
    """A value of numpy that orjson does not take as it is."""
    dtype = value.dtype
    if dtype.kind == "O":
        raise TypeError("a numpy array of objects (dtype=object): send a list, or give the array a dtype of numbers")
    if dtype.kind == "V":
        raise TypeError(f"a structured numpy array (dtype={dtype}): send one array for each field")
    if isinstance(value, numpy.ma.MaskedArray):
        return value.tolist()
    if dtype.kind == "m":
        return value.astype("timedelta64[us]").tolist()
    if isinstance(value, numpy.generic):
        return float(value) if dtype.kind == "f" else value.tolist()
    if value.ndim == 0:
        return value[()]
    if dtype.kind == "f" and dtype.itemsize > 8:
        return value.astype(numpy.float64)
    if dtype.kind in "biuf" and not (value.flags.c_contiguous and dtype.isnative and type(value) is numpy.ndarray):
        return numpy.array(value, dtype=dtype.newbyteorder("="), order="C", subok=False)
    return value.astype("datetime64[us]").tolist() if dtype.kind == "M" else value.tolist()


def _refusal(value: object) -> str:
    kind = type(value)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    if kind.__module__.startswith("PIL."):
        return (
            f"an image ({name}): send its bytes (image.save(buffer, 'PNG'), then buffer.getvalue()) or "
            "numpy.asarray(image)"
        )
    return f"an object of type {name}: send numbers, text, lists, dicts or a pydantic model instead"
