"""Players that read the words that a language model reads, and nothing else.

They show that the words are enough to play by, and what a score is worth: the line to beat after the random player.
Each takes a message and returns the name of an action.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass

Player = Callable[[str], str]
"""What a player does, given the screen in words."""

_LINE = re.compile(r"^(.+): x (-?\d+), y (-?\d+)(?:, moved ([+-]\d+), ([+-]\d+))?$", re.MULTILINE)


@dataclass(frozen=True)
class Seen:
    """One line of a message."""

    name: str
    x: int
    y: int
    dx: int
    dy: int


def read(message: str) -> list[Seen]:
    """What a message says is where.

    Example:
        >>> read("ball: x 68, y 110, moved +8, -4")
        [Seen(name='ball', x=68, y=110, dx=8, dy=-4)]
    """
    return [Seen(name, int(x), int(y), int(dx or 0), int(dy or 0)) for name, x, y, dx, dy in _LINE.findall(message)]


def one(things: list[Seen], name: str) -> Seen | None:
    """The thing whose name begins so; None where there is none."""
    return next((thing for thing in things if thing.name.startswith(name)), None)


def pong(message: str) -> str:
    """Keep the paddle where the ball will be."""
    things = read(message)
    ball, paddle = one(things, "ball"), one(things, "your paddle")
    if ball is None or paddle is None:
        return "FIRE"
    off = ball.y + ball.dy - (paddle.y + paddle.dy)
    return "NOOP" if abs(off) < 6 else "RIGHT" if off < 0 else "LEFT"


def breakout(message: str) -> str:
    """Serve, and stand where the ball comes down."""
    things = read(message)
    ball, paddle = one(things, "ball"), one(things, "your paddle")
    if ball is None or paddle is None:
        return "FIRE"
    off = _landing(ball, paddle.y) - (paddle.x + paddle.dx // 2)
    return "NOOP" if abs(off) < 5 else "LEFT" if off < 0 else "RIGHT"


def _landing(ball: Seen, height: int) -> int:
    """Where the ball meets the paddle's height, off Breakout's side walls (x 8 to 151); its place while it rises."""
    if ball.dy <= 0:
        return ball.x
    x = ball.x + ball.dx * (height - ball.y) // ball.dy - 8
    width = 143
    folded = x % (2 * width)
    return 8 + min(folded, 2 * width - folded)


def freeway(message: str) -> str:
    """Walk."""
    return "UP"


def space_invaders(message: str) -> str:
    """Leave the way of bombs, else go below the nearest column and shoot."""
    things = read(message)
    cannon = one(things, "your cannon")
    if cannon is None:
        return "FIRE"
    bombs = [thing for thing in things if thing.name == "bomb" and thing.y > 110 and abs(thing.x - cannon.x) < 9]
    if bombs:
        nearest = max(bombs, key=lambda bomb: bomb.y)
        return "LEFTFIRE" if cannon.x > 45 and (nearest.x >= cannon.x or cannon.x > 110) else "RIGHTFIRE"
    columns = [thing for thing in things if thing.name.startswith("column")]
    if not columns:
        return "FIRE"
    off = min((column.x + 2 * column.dx - cannon.x for column in columns), key=abs)
    return "FIRE" if abs(off) < 4 else "LEFTFIRE" if off < 0 else "RIGHTFIRE"


def skiing(message: str) -> str:
    """Steer towards the next gate, gently: a skier who goes sideways goes slowly."""
    things = read(message)
    you = one(things, "you")
    if you is None:
        return "NOOP"
    gates = [thing for thing in things if thing.name.startswith("gate") and thing.y > you.y + 4]
    off = min(gates, key=lambda gate: gate.y).x - you.x if gates else 0
    wanted = max(-2, min(2, round(off / 25)))
    return "NOOP" if you.dx == wanted else "LEFT" if you.dx > wanted else "RIGHT"


SCRIPTED: dict[str, Player] = {
    "breakout": breakout,
    "freeway": freeway,
    "pong": pong,
    "skiing": skiing,
    "space_invaders": space_invaders,
}
"""The players by their games."""


def no_op(message: str) -> str:
    """Do nothing."""
    return "NOOP"


def random_player(actions: list[str], seed: int) -> Player:
    """Any of the actions, each equally often."""
    generator = random.Random(seed)
    return lambda message: generator.choice(actions)
