"""How the players move that are not the agent."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Literal

OpponentName = Literal["random", "first", "last", "middle"]
"""The opponents there are."""

Opponent = Callable[[Sequence[int], random.Random], int]
"""Chooses one of the legal moves, which are in rising order."""


def _random(legal: Sequence[int], generator: random.Random) -> int:
    return legal[int(generator.random() * len(legal))]


def _first(legal: Sequence[int], generator: random.Random) -> int:
    return legal[0]


def _last(legal: Sequence[int], generator: random.Random) -> int:
    return legal[-1]


def _middle(legal: Sequence[int], generator: random.Random) -> int:
    return legal[len(legal) // 2]


OPPONENTS: dict[OpponentName, Opponent] = {"random": _random, "first": _first, "last": _last, "middle": _middle}
"""Each opponent by its name."""
