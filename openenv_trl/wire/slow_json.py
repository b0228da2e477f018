"""The JSON that orjson does not write: keys that are no strings, integers over 64 bits, lone surrogates.

It goes down only into the branches that orjson refuses, so that a large array beside one such value costs what it
always costs. On its way it knows where it is: what nobody can write is refused with its place.
"""

from __future__ import annotations

import json
import re
from enum import Enum
from typing import Any, cast

import orjson
import pydantic_core

from openenv_trl.wire.byte_text import text_of_bytes
from openenv_trl.wire.json_values import replacement, write

MAX_DEPTH = 250
"""Levels of nesting that can be written: few enough for every peer's reader."""
MAX_DIGITS = 4300
"""Digits of the longest integer: Python's own limit for reading one."""

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_IDENTIFIER = re.compile(r"[^\W\d]\w*\Z")
_LONGEST_NAME = 60
_WORD = 2**63


def write_slowly(value: Any, at: str = "") -> bytes:
    """Return the value as compact JSON.

    Raises:
        TypeError: It cannot be written; the text begins with the place, as in ``observation.frames[3]: ...``.
    """
    return _write(value, at, ())


def _write(value: Any, at: str, around: tuple[int, ...]) -> bytes:
    try:
        return write(value)
    except TypeError:
        pass
    if isinstance(value, Enum):
        return _write(value.value, at, around)
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, int):
        return _integer(value, at)
    if id(value) in around:
        raise TypeError(_placed(at, "it holds itself"))
    if len(around) >= MAX_DEPTH:
        raise TypeError(_placed(at[:_LONGEST_NAME] + "...", f"nested more than {MAX_DEPTH} levels deep"))
    around = (*around, id(value))
    if isinstance(value, dict):
        return _object(cast("dict[Any, Any]", value), at, around)
    if isinstance(value, list):
        items = cast("list[Any]", value)
        return b"[%b]" % b",".join([_write(item, f"{at}[{index}]", around) for index, item in enumerate(items)])
    try:
        simpler = replacement(value)
    except TypeError as error:
        raise TypeError(_placed(at, str(error))) from error
    return _write(simpler, at, around)


def _object(value: dict[Any, Any], at: str, around: tuple[int, ...]) -> bytes:
    named: dict[str, Any] = {}
    for key, item in value.items():
        name = key if type(key) is str else str(key) if type(key) is int and -_WORD < key < _WORD else key_text(key, at)
        if name in named:
            raise TypeError(_placed(at, f"two keys of this dict are both {_shown(name)} in JSON, whose keys are text"))
        named[name] = item
    try:
        return write(named)  # where nothing but the keys was in its way
    except TypeError:
        items = [_text(name) + b":" + _write(item, _inside(at, name), around) for name, item in named.items()]
        return b"{%b}" % b",".join(items)


def key_text(key: Any, at: str = "") -> str:
    """Return a dict's key as text, as pydantic writes it.

    Raises:
        TypeError: It has no text.
    """
    if isinstance(key, Enum):
        key = key.value
    if isinstance(key, str):
        return str(key)
    if isinstance(key, int) and not isinstance(key, bool):
        return _integer(key, at).decode()
    if isinstance(key, (bytes, bytearray)):
        return text_of_bytes(bytes(key))
    as_scalar = getattr(key, "item", None)
    try:
        simple = as_scalar() if callable(as_scalar) else key
        ((text, _),) = cast("dict[str, Any]", pydantic_core.to_jsonable_python({simple: None})).items()
    except Exception as error:  # boundary: any hashable object may be a key
        kind = f"{type(key).__module__}.{type(key).__qualname__}".removeprefix("builtins.")
        raise TypeError(_placed(at, f"a key of type {kind}, which is no text in JSON")) from error
    return text


def _text(value: str) -> bytes:
    text = str.__str__(value)
    try:
        return orjson.dumps(text)
    except TypeError:
        text = json.dumps(text, ensure_ascii=False)
        return _LONE_SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", text).encode()


def _integer(value: int, at: str) -> bytes:
    try:
        digits = str(int(value))
    except ValueError:
        digits = ""
    if not 0 < len(digits.lstrip("-")) <= MAX_DIGITS:
        raise TypeError(_placed(at, f"an integer of more than {MAX_DIGITS} digits, which readers refuse: send text"))
    return digits.encode()


def _inside(at: str, name: str) -> str:
    if not _IDENTIFIER.match(name):
        return f"{at}[{_shown(name)}]"
    return f"{at}.{_shortened(name)}" if at else _shortened(name)


def _shown(name: str) -> str:
    return f'"{_LONE_SURROGATE.sub("?", _shortened(name))}"'


def _shortened(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}..."


def _placed(at: str, what: str) -> str:
    return f"{at}: {what}" if at else what
