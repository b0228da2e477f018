"""A cache of what is made of texts, bounded by how much it holds and not by how many entries."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sized
from threading import Lock
from typing import Any, Generic, TypeVar, cast

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")

MAX_WEIGHT = 1_000_000
"""Characters and ids that one cache holds, keys and values together: some 8 to 40 MB in Python's memory, whether they
are a few long observations or many short ones."""


def size_of(value: Any) -> int:
    """Characters of a text, or items of a sequence with those inside; 1 for all else."""
    if isinstance(value, str) or not isinstance(value, (tuple, list)):
        return 1 + len(value) if isinstance(value, Sized) else 1
    items = cast("list[Any]", value)
    if items and isinstance(items[0], int):
        return 1 + len(items)
    return 1 + sum(size_of(item) for item in items)


class BoundedCache(Generic[Key, Value]):
    """A function that remembers what it made last, up to a total size; safe to call from several threads.

    Args:
        make: Makes the value of a key. What it raises is raised, and nothing is kept.
        max_weight: Sizes of all keys and values together, by `size_of`. An entry that is larger by itself is not kept.
    """

    def __init__(self, make: Callable[[Key], Value], max_weight: int = MAX_WEIGHT) -> None:
        self._make = make
        self._max_weight = max_weight
        self._entries: OrderedDict[Key, tuple[Value, int]] = OrderedDict()
        self._lock = Lock()
        self.weight = 0
        """Of all that is kept now."""

    def __len__(self) -> int:
        return len(self._entries)

    def __call__(self, key: Key) -> Value:
        """The value of the key, remembered or made."""
        with self._lock:
            found = self._entries.get(key)
            if found is not None:
                self._entries.move_to_end(key)
                return found[0]
        value = self._make(key)  # not under the lock: it may take long, or ask this cache again
        weight = size_of(key) + size_of(value)
        if weight > self._max_weight:
            return value
        with self._lock:
            if key not in self._entries:
                self._entries[key] = value, weight
                self.weight += weight
            while self.weight > self._max_weight:
                _, (_, dropped) = self._entries.popitem(last=False)
                self.weight -= dropped
        return value
