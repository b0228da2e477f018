"""Values as they travel between a solution's process and its judge's: data as data, everything else by number.

Data is copied by what it holds: a value of a subclass arrives as its plain base, so that no method of the solution's
(an ``__eq__`` that is always true) comes along. What is no data stays where it is, and a number stands for it.
"""

# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false
# What travels is of any type at all.
from __future__ import annotations

import math
import numbers
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

_EXACT = 1 << 53

Keep = Callable[[Any], Any]
"""Gives a stand-in for what is no data, as it travels."""


def encode(value: Any, keep: Keep, known: Mapping[int, int] | None = None) -> Any:
    """Return a value as it travels.

    Args:
        value: Of any type.
        keep: What becomes of what is no data.
        known: Containers that the other side has, by their `id`: their places among those.
    """
    if known and id(value) in known:
        return {"k": known[id(value)]}
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
        return {"c": [encode(value.real, keep, known), encode(value.imag, keep, known)]}
    if isinstance(value, list):
        return {"l": [encode(item, keep, known) for item in list.__iter__(value)]}
    if isinstance(value, tuple):
        return {"t": [encode(item, keep, known) for item in tuple.__iter__(value)]}
    if isinstance(value, dict):
        return {"d": [[encode(key, keep, known), encode(item, keep, known)] for key, item in dict.items(value)]}
    if isinstance(value, frozenset):
        return {"z": [encode(item, keep, known) for item in frozenset.__iter__(value)]}
    if isinstance(value, set):
        return {"s": [encode(item, keep, known) for item in set.__iter__(value)]}
    if isinstance(value, range):
        return {"r": [encode(each, keep, known) for each in (value.start, value.stop, value.step)]}
    if isinstance(value, Decimal):
        return {"D": str(value)}
    if isinstance(value, Fraction):
        return {"F": [encode(value.numerator, keep, known), encode(value.denominator, keep, known)]}
    if isinstance(value, datetime):  # before date, which it is too
        return {"dt": datetime.isoformat(value)}
    if isinstance(value, date):
        return {"da": date.isoformat(value)}
    if isinstance(value, time):
        return {"ti": time.isoformat(value)}
    if isinstance(value, timedelta):
        return {"td": [value.days, value.seconds, value.microseconds]}
    if isinstance(value, deque):
        return {"q": [encode(item, keep, known) for item in deque.__iter__(value)], "m": deque.maxlen.__get__(value)}
    if isinstance(value, numbers.Integral):  # as NumPy's are, which are no int
        return encode(int(value), keep, known)
    if isinstance(value, numbers.Real):
        return encode(float(value), keep, known)
    return {"o": keep(value)}


def decode(data: Any, find: Callable[[Any], Any], known: Sequence[Any] = ()) -> Any:
    """Return the value that travelled.

    Args:
        data: As `encode` made it, read from JSON.
        find: Gives what a stand-in stands for.
        known: Containers that the other side may name by their places.

    Raises:
        ValueError: It is none that `encode` makes.
    """
    if not isinstance(data, dict):
        if data is None or isinstance(data, (bool, int, float, str)):
            return data
        raise ValueError("no such value")
    kind, held = next(iter(data.items()))  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]

    def items() -> list[Any]:
        return [decode(item, find, known) for item in held]  # pyright: ignore[reportUnknownVariableType]

    makers: dict[Any, Callable[[], Any]] = {
        "i": lambda: int(held, 16),
        "f": lambda: float(held),
        "b": lambda: bytearray.fromhex(held) if data.get("m") else bytes.fromhex(held),
        "c": lambda: complex(*items()),
        "l": items,
        "t": lambda: tuple(items()),
        "d": lambda: {decode(key, find, known): decode(item, find, known) for key, item in held},
        "z": lambda: frozenset(items()),
        "s": lambda: set(items()),
        "r": lambda: range(*items()),
        "D": lambda: Decimal(held),
        "F": lambda: Fraction(*items()),
        "dt": lambda: datetime.fromisoformat(held),
        "da": lambda: date.fromisoformat(held),
        "ti": lambda: time.fromisoformat(held),
        "td": lambda: timedelta(*(int(part) for part in held)),
        "q": lambda: deque(items(), data.get("m")),
        "o": lambda: find(held),
        "k": lambda: known[held],
    }
    if kind not in makers:
        raise ValueError(f"no such kind of value: {kind!r}")
    return makers[kind]()


def containers(given: Iterable[Any]) -> list[Any]:
    """Return all that can be changed in values, in an order that is the same on both sides."""
    found: list[Any] = []
    left = list(given)[::-1]
    while left:
        value = left.pop()
        if isinstance(value, (list, tuple)):
            left += value[::-1]
        elif isinstance(value, dict):
            left += [*value.values()][::-1]
        if isinstance(value, (list, dict, set, bytearray)):
            found.append(value)
    return found


def copied(container: Any) -> Any:
    """Return a plain container of the same items."""
    plain = next(kind for kind in (list, dict, set, bytearray) if isinstance(container, kind))
    return plain(container)


def is_unchanged(container: Any, before: Any) -> bool:
    """Whether a container has the very items that its copy has, without asking them whether they are equal."""
    if len(container) != len(before):
        return False
    if isinstance(container, dict):
        items, old = dict.items(container), dict.items(before)
        return all(one is two and held is was for (one, held), (two, was) in zip(items, old, strict=True))
    if isinstance(container, bytearray):
        return container == before
    if isinstance(container, set):
        return {id(item) for item in container} == {id(item) for item in before}
    return all(one is two for one, two in zip(container, before, strict=True))


def replace(container: Any, content: Any) -> None:
    """Give a container what it has become.

    Raises:
        TypeError: That is of another kind.
    """
    if copied(container).__class__ is not type(content):
        raise TypeError("a container has become one of another kind")
    if isinstance(container, (list, bytearray)):
        container[:] = content
    else:
        container.clear()
        container.update(content)
