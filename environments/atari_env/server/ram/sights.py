"""The words that a reader of a game's RAM has: what is where on the screen, and what else there is to know."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Sight:
    """Something on the screen.

    Attributes:
        name: What it is called. Things of one name are not told apart from step to step.
        x: Its left edge, in pixels from the screen's left.
        y: Its upper edge, in pixels from the screen's top.
        width: Its width in pixels, as it usually is.
        height: Its height in pixels, as it usually is.
    """

    name: str
    x: int
    y: int
    width: int
    height: int

    @property
    def centre(self) -> tuple[int, int]:
        """Its middle: x and y."""
        return self.x + self.width // 2, self.y + self.height // 2


@dataclass
class Scene:
    """What a screen shows."""

    facts: list[str] = field(default_factory=list[str])
    """What has no place, each a short sentence without its full stop."""
    sights: list[Sight] = field(default_factory=list[Sight])
    """What has a place."""


Reader = Callable[[Sequence[int]], Scene]
"""Reads the 128 bytes of a game."""


def decimal(byte: int) -> int:
    """The number that a byte's two half-bytes spell, as consoles keep scores: 0x42 is 42."""
    return (byte >> 4) * 10 + (byte & 15)
