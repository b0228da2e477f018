"""MessagePack of the native wire: what JSON says, and beside it what JSON cannot.

Equal to the JSON codec in all that JSON can express. Beyond it: bytes travel as bytes, arrays as their raw memory
(extension type 1), NaN and the infinities as themselves, integers beyond 64 bits exactly (extension type 2).

Source: the MessagePack specification, 2013 (``bin`` and ``ext`` families).
"""

from __future__ import annotations

import contextlib
import math
import re
import struct
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

import ormsgpack

from openenv_trl.errors import ProtocolError
from openenv_trl.wire.json_values import replacement
from openenv_trl.wire.slow_json import key_text, write_slowly

ARRAY = 1
"""Extension type of arrays: one byte with the length of a header, the header ``<dtype>|<shape>`` in ASCII (such as
``<f4|2,3``; as numpy writes the dtype), then the elements in C order."""
BIG_INTEGER = 2
"""Extension type of integers beyond 64 bits: their decimal digits in ASCII."""

_OPTIONS = ormsgpack.OPT_PASSTHROUGH_DATETIME | ormsgpack.OPT_PASSTHROUGH_DATACLASS | ormsgpack.OPT_PASSTHROUGH_BIG_INT
_NUMBERS = "biufc"  # numpy's kinds of which the elements are plain memory
_MOST_DIGITS = 10_000  # of a big integer: far beyond any use, and quick to convert
_MOST_AXES = 64
_MOST_EMPTY = 1000  # lists that hold nothing, of an array without elements
_STRUCT_CODES = {
    "b1": "?", "i1": "b", "u1": "B", "i2": "h", "u2": "H", "i4": "i", "u4": "I", "i8": "q", "u8": "Q",
    "f2": "e", "f4": "f", "f8": "d",
}  # fmt: skip


def pack(value: Any, at: str = "result") -> bytes:
    """Return the value as MessagePack.

    Args:
        value: What to write.
        at: The name, in errors, of the fourth item of a frame: what its call brings, or what it is called with.

    Raises:
        TypeError: The value holds something that neither JSON nor this codec can express; the text names its type.
    """
    try:
        return ormsgpack.packb(value, _express, _OPTIONS)
    except TypeError as error:
        cause = error.__cause__
        if isinstance(cause, TypeError):
            raise TypeError(_with_place(value, at) or str(cause)) from None
        # What is left are keys that are not strings, and lone surrogates: rewritten as the JSON codec would.
        return _pack_slowly(value, at)


def unpack(data: bytes | memoryview) -> Any:
    """Return what MessagePack says. Arrays come as numpy arrays that cannot be written to; as lists without numpy.

    Raises:
        ProtocolError: The data are not MessagePack, or hold an extension that this codec does not know.
    """
    try:
        return ormsgpack.unpackb(data, ext_hook=_understand)
    except (ValueError, TypeError, OverflowError) as error:
        raise _protocol_error(data, error) from None


def _protocol_error(data: bytes | memoryview, error: Exception) -> ProtocolError:
    reasons: list[ProtocolError] = []

    def understand(code: int, payload: bytes) -> Any:
        try:
            return _understand(code, payload)
        except ProtocolError as reason:  # which ormsgpack would not pass on
            reasons.append(reason)
            raise

    with contextlib.suppress(ValueError, TypeError, OverflowError):
        ormsgpack.unpackb(data, ext_hook=understand)
    return reasons[0] if reasons else ProtocolError(f"not a message of the native wire: {error}")


def array_header(count: int) -> bytes:
    """Return the head of an array of so many items, which follow as they were packed one by one."""
    if count < 16:
        return bytes((0x90 | count,))
    if count < 65_536:
        return b"\xdc" + count.to_bytes(2, "big")
    return b"\xdd" + count.to_bytes(4, "big")


def _pack_slowly(value: Any, at: str) -> bytes:
    try:
        return ormsgpack.packb(_with_string_keys(value, 0), _express, _OPTIONS | ormsgpack.OPT_REPLACE_SURROGATES)
    except TypeError as error:
        raise TypeError(_with_place(value, at) or str(error.__cause__ or error)) from None


def _with_place(value: Any, at: str) -> str | None:
    """What the JSON codec says of the value, which tells where in it the trouble is; None where it has none with it."""
    try:
        write_slowly(value, "")
    except TypeError as error:
        return re.sub(r"^\[3\]", at, str(error))
    return None


def _with_string_keys(value: Any, depth: int) -> Any:
    if depth > 200:
        raise TypeError("nested more than 200 levels deep, or containing itself")
    if isinstance(value, Mapping):
        mapping = cast("Mapping[Any, Any]", value)
        return {key_text(key): _with_string_keys(item, depth + 1) for key, item in mapping.items()}
    if isinstance(value, list | tuple):
        return [_with_string_keys(item, depth + 1) for item in cast("list[Any]", value)]
    return value


def _express(value: Any) -> Any:
    """Return the value in terms that MessagePack has; ormsgpack calls it for each value that it does not know."""
    if isinstance(value, int):
        return ormsgpack.Ext(BIG_INTEGER, str(value).encode())
    if isinstance(value, memoryview):
        return value.tobytes()
    numpy = sys.modules.get("numpy")  # a value of numpy's has imported it
    if numpy is not None and isinstance(value, (numpy.ndarray, numpy.generic)) and value.dtype.kind in _NUMBERS:
        if isinstance(value, numpy.generic):
            return _express_scalar(value)
        if not isinstance(value, numpy.ma.MaskedArray):
            return _express_array(value)
    # All else as on the OpenEnv wire, but for what lies in it: its bytes and arrays are asked for in their turn.
    return _with_string_keys(replacement(value), 0)


def _express_array(array: Any) -> Any:
    shape = ",".join(map(str, array.shape))
    header = f"{array.dtype.str}|{shape}".encode()
    return ormsgpack.Ext(ARRAY, bytes((len(header),)) + header + array.tobytes())


def _express_scalar(scalar: Any) -> Any:
    if scalar.dtype.kind == "c":
        return _express_array(scalar.reshape(()))
    value = scalar.item()
    if type(value) is type(scalar):
        raise TypeError(f"Unable to serialize unknown type: {type(scalar)}")
    return value


def _understand(code: int, data: bytes) -> Any:
    understand = _EXTENSIONS.get(code)
    if understand is None:
        raise ProtocolError(f"a message holds the extension type {code}, which the native wire does not have")
    return understand(data)


def _understand_array(data: bytes) -> Any:
    start = data[0] + 1 if data else 1
    dtype_name, bar, shape_text = data[1:start].decode("ascii", "replace").rpartition("|")
    shape = _shape(shape_text)
    if not bar or shape is None or len(dtype_name) < 3 or dtype_name[1] not in _NUMBERS:
        raise ProtocolError("a message holds an array whose header is not '<dtype>|<shape>', such as '<f4|2,3'")
    try:
        import numpy
    except ImportError:
        return _as_lists(dtype_name, shape, data[start:])
    try:
        dtype = numpy.dtype(dtype_name)
    except TypeError:
        raise ProtocolError(f"a message holds an array of the unknown dtype {dtype_name[:20]!r}") from None
    if math.prod(shape) * dtype.itemsize != len(data) - start:
        raise ProtocolError(f"a message holds an array of shape {shape} and dtype {dtype}, but not as many bytes")
    flat: Any = numpy.frombuffer(data, dtype, offset=start)
    return flat.reshape(shape)


def _as_lists(dtype_name: str, shape: tuple[int, ...], elements: bytes) -> Any:
    """The array as the OpenEnv wire has it, for who has no numpy."""
    code = _STRUCT_CODES.get(dtype_name[1:])
    order = ">" if dtype_name[0] == ">" else "<"
    if code is None:
        raise ProtocolError(f"a message holds an array of dtype {dtype_name[:20]!r}: install numpy to receive it")
    count = math.prod(shape)
    if count * struct.calcsize(f"<{code}") != len(elements) or (not count and max(shape) > _MOST_EMPTY):
        raise ProtocolError(f"a message holds an array of shape {shape} and dtype {dtype_name}, but not as many bytes")
    return _nested(iter(struct.unpack(f"{order}{count}{code}", elements)), shape)


def _nested(elements: Iterator[Any], shape: tuple[int, ...]) -> Any:
    if not shape:
        return next(elements)
    return [_nested(elements, shape[1:]) for _ in range(shape[0])]


def _shape(text: str) -> tuple[int, ...] | None:
    parts = text.split(",") if text else []
    if len(parts) > _MOST_AXES or not all(part.isdigit() and len(part) < 20 for part in parts):
        return None
    return tuple(map(int, parts))


def _understand_big_integer(data: bytes) -> int:
    digits = data.decode("ascii", "replace")
    if len(digits) > _MOST_DIGITS or not digits.removeprefix("-").isdigit():
        raise ProtocolError("a message holds a big integer that is not decimal digits")
    try:
        return int(digits)
    except ValueError as error:  # more digits than Python converts
        raise ProtocolError(f"a message holds a big integer: {error}") from None


_EXTENSIONS: dict[int, Callable[[bytes], Any]] = {ARRAY: _understand_array, BIG_INTEGER: _understand_big_integer}
