"""Pong, Breakout, Tennis and Boxing: who and what is where.

Not known: Pong's speed of the ball beyond what two steps show; Breakout's single bricks (only how many a row has);
Tennis's games and sets; Boxing's arms.
"""

from __future__ import annotations

from collections.abc import Sequence

from atari_env.server.ram.sights import Scene, Sight, decimal


def pong(ram: Sequence[int]) -> Scene:
    """Both paddles, the ball while it is in play, and the points."""
    scene = Scene([f"points: you {ram[14]}, opponent {ram[13]}"])
    scene.sights.append(Sight("your paddle", 140, ram[51] - 13, 4, 15))
    if ram[50] > 34:
        scene.sights.append(Sight("opponent's paddle", 16, ram[50] - 15, 4, 15))
    ball = Sight("ball", ram[49] - 49, ram[54] - 14, 2, 4)
    if ram[54] and 34 <= ball.y < 191 and 0 <= ball.x < 159:
        scene.sights.append(ball)
    else:
        scene.facts.append("no ball in play")
    return scene


_BRICKS = (0b00010101, 0b01010101, 0b01010000, 0b01010101, 0b01010101, 0b01000000)
"""Which bits of a row's six bytes stand for a brick: one of the two that each brick has."""
_BRICK_COLOURS = ("red", "orange", "brown", "yellow", "green", "blue")


def breakout(ram: Sequence[int]) -> Scene:
    """The paddle, the ball while it is in play, and how many bricks each row has."""
    bricks = [sum((ram[row + 6 * part] & _BRICKS[part]).bit_count() for part in range(6)) for row in range(6)]
    rows = ", ".join(f"{colour} {count}" for colour, count in zip(_BRICK_COLOURS, reversed(bricks), strict=True))
    scene = Scene([f"bricks of 18 in each row from the top: {rows}"])
    scene.sights.append(Sight("your paddle", ram[72] - 47, 189, 16, 4))
    ball = Sight("ball", ram[99] - 49, ram[101] + 9, 2, 4)
    if ram[101] and ball.y < 193 and 8 <= ball.x < 152:
        scene.sights.append(ball)
    else:
        scene.facts.append("no ball in play")
    return scene


def tennis(ram: Sequence[int]) -> Scene:
    """Both players, the ball and its shadow, and the points of the game."""
    told = ("0", "15", "30", "40")
    scene = Scene([f"points of this game: you {told[min(ram[69], 3)]}, opponent {told[min(ram[70], 3)]}"])
    upper = (ram[26] - 1, 166 - ram[24])
    lower = (ram[27] - 1, 166 - ram[25])
    you, opponent = (upper, lower) if ram[80] == 0 else (lower, upper)
    scene.facts.append(f"you play in the {'upper' if ram[80] == 0 else 'lower'} half")
    scene.sights += [Sight("you", *you, 13, 23), Sight("opponent", *opponent, 13, 23)]
    if ram[16] > 2:
        scene.sights.append(Sight("ball", ram[16] - 2, 189 - ram[54], 2, 2))
        scene.sights.append(Sight("the ball's shadow on the ground", ram[16] - 2, 189 - ram[55], 2, 2))
    return scene


def boxing(ram: Sequence[int]) -> Scene:
    """Both boxers and their points."""
    scene = Scene([f"points: you {decimal(ram[18])}, opponent {decimal(ram[19])}"])
    scene.sights += [
        Sight("you", ram[32] + 5, ram[34] + 38, 14, 46),
        Sight("opponent", ram[33] + 4, ram[35] + 38, 14, 46),
    ]
    return scene
