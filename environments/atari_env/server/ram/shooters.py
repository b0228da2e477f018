"""Space Invaders and Seaquest: what can be shot, and what shoots.

Not known: which of Space Invaders' shields' parts are left, and its command ship; a shark of Seaquest's that
is being shot.
"""

from __future__ import annotations

from collections.abc import Sequence

from atari_env.server.ram.sights import Scene, Sight

_COLUMNS = 6
_ROWS = 6


def space_invaders(ram: Sequence[int]) -> Scene:
    """The cannon, the columns of invaders that are left, bombs and the cannon's shot."""
    scene = Scene([f"invaders left: {ram[17]}"])
    scene.sights.append(Sight("your cannon", ram[28] - 1, 185, 7, 10))
    # Each row is a byte with a bit for each column, the lowest row first. The place is that of the leftmost column that
    # is left.
    rows = ram[18 : 18 + _ROWS]
    columns = [sum(row >> column & 1 for row in rows) for column in range(_COLUMNS)]
    there = [column for column, count in enumerate(columns) if count]
    for column in there:
        lowest = next(row for row in range(_ROWS) if rows[row] >> column & 1)
        x = ram[26] - 1 + 16 * (column - there[0])
        y = 31 + 2 * ram[16] + 18 * (_ROWS - 1 - lowest)
        scene.sights.append(Sight(f"column {column + 1} of invaders ({columns[column]}), its lowest", x, y, 8, 10))
    for name, x, y in (("bomb", 83, 81), ("bomb", 84, 82), ("your shot", 87, 85)):
        shot = Sight(name, ram[x] - 2, 2 * ram[y] + 3, 1, 10)
        if 20 < shot.y < 195:
            scene.sights.append(shot)
    return scene


_LANES = ("lowest", "third", "second", "highest")


def seaquest(ram: Sequence[int]) -> Scene:
    """The submarine, its torpedo and oxygen, and in each lane the enemies and divers."""
    scene = Scene([f"oxygen: {ram[102]} of 64", f"divers on board: {ram[62]} of 6"])
    scene.facts.append(f"you face {'left' if ram[86] == 8 else 'right'}")
    scene.sights.append(Sight("you", ram[70], ram[97] + 33, 16, 11))
    if 0 < ram[103] < 160:
        scene.sights.append(Sight("your torpedo", ram[103], ram[97] + 40, 8, 1))
    for lane, name in enumerate(_LANES):
        submarine = 3 < ram[89 + lane] % 8 < 7
        kind, y = "submarine" if submarine else "shark", 141 - 24 * lane
        # The lane's pattern: bit 2 for the enemy at the place itself, bit 1 and bit 0 for those 16 and 32 to its right.
        for bit, offset in ((4, 0), (2, 16), (1, 32)):
            x = (ram[30 + lane] + offset) % 256
            if ram[36 + lane] % 8 & bit and x < 160:
                scene.sights.append(Sight(f"{kind} in the {name} lane", x, y, 8, 11 if submarine else 7))
        if 0 < ram[71 + lane] < 160:
            thing = f"enemy's torpedo in the {name} lane" if submarine else f"diver in the {name} lane"
            scene.sights.append(
                Sight(thing, ram[71 + lane] + 3 * submarine, y + 4 * submarine, 8, 4 if submarine else 11)
            )
    return scene
