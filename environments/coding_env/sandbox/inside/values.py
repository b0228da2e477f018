"""Values as they travel between a solution's process and its judge's: data as data, everything else by number.

Data is copied by what it holds: a value of a subclass arrives as its plain base, so that no method of the solution's
(an ``__eq__`` that is always true) comes along. What is no data stays where it is, and a number stands for it.
"""

# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false
# What travels is of any type at all.
from __future__ import annotations

import math
import numbers
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

_EXACT = 1 << 53

Keep = Callable[[Any], Any]
"""Gives a stand-in for what is no data, as it travels."""


def encode(value: Any, keep: Keep) -> Any:
    """Return a value as it travels."""
    if value is None or value is True or value is False:
        return value
    if isinstance(value, int):
        number = int.__index__(value) if type(value) is int else int.__add__(value, 0)
        return number if -_EXACT < number < _EXACT else {"i": hex(number)}
    if isinstance(value, float):
        number = float.__add__(value, 0.0) if type(value) is not float else value
        return number if math.isfinite(number) else {"f": float.__repr__(number)}
    if isinstance(value, str):
        return str.__str__(value) if type(value) is str else "".join(str.__iter__(value))
    if isinstance(value, (bytes, bytearray)):
        return {"b": bytes(value).hex(), "m": isinstance(value, bytearray)}
    if isinstance(value, complex):
        return {"c": [encode(value.real, keep), encode(value.imag, keep)]}
    if isinstance(value, list):
        return {"l": [encode(item, keep) for item in list.__iter__(value)]}
    if isinstance(value, tuple):
        return {"t": [encode(item, keep) for item in tuple.__iter__(value)]}
    if isinstance(value, dict):
        return {"d": [[encode(key, keep), encode(item, keep)] for key, item in dict.items(value)]}
    if isinstance(value, frozenset):
        return {"z": [encode(item, keep) for item in frozenset.__iter__(value)]}
    if isinstance(value, set):
        return {"s": [encode(item, keep) for item in set.__iter__(value)]}
    if isinstance(value, range):
        return {"r": [encode(each, keep) for each in (value.start, value.stop, value.step)]}
    if isinstance(value, Decimal):
        return {"D": str(value)}
    if isinstance(value, Fraction):
        return {"F": [encode(value.numerator, keep), encode(value.denominator, keep)]}
    if isinstance(value, numbers.Integral):  # as NumPy's are, which are no int
        return encode(int(value), keep)
    if isinstance(value, numbers.Real):
        return encode(float(value), keep)
    return {"o": keep(value)}


def decode(data: Any, find: Callable[[Any], Any]) -> Any:
    """Return the value that travelled.

    Args:
        data: As `encode` made it, read from JSON.
        find: Gives what a stand-in stands for.

    Raises:
        ValueError: It is none that `encode` makes.
    """
    if not isinstance(data, dict):
        if data is None or isinstance(data, (bool, int, float, str)):
            return data
        raise ValueError("no such value")
    kind, held = next(iter(data.items()))  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]

    def items() -> list[Any]:
        return [decode(item, find) for item in held]  # pyright: ignore[reportUnknownVariableType]

    makers: dict[Any, Callable[[], Any]] = {
        "i": lambda: int(held, 16),
        "f": lambda: float(held),
        "b": lambda: bytearray.fromhex(held) if data.get("m") else bytes.fromhex(held),
        "c": lambda: complex(*items()),
        "l": items,
        "t": lambda: tuple(items()),
        "d": lambda: {decode(key, find): decode(item, find) for key, item in held},
        "z": lambda: frozenset(items()),
        "s": lambda: set(items()),
        "r": lambda: range(*items()),
        "D": lambda: Decimal(held),
        "F": lambda: Fraction(*items()),
        "o": lambda: find(held),
    }
    if kind not in makers:
        raise ValueError(f"no such kind of value: {kind!r}")
    return makers[kind]()
