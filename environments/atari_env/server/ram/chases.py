"""Freeway, Skiing and Ms. Pac-Man: who walks or drives where.

Not known: Freeway's lorries of the later modes; Skiing's trees by kind; Ms. Pac-Man's dots (only how many were eaten)
and walls, which the grid of the screen shows.
"""

from __future__ import annotations

from collections.abc import Sequence

from atari_env.server.ram.sights import Scene, Sight, decimal


def freeway(ram: Sequence[int]) -> Scene:
    """The chicken, and the car of each of the ten lanes."""
    scene = Scene([f"crossings: {decimal(ram[103])}"])
    scene.sights.append(Sight("your chicken", 44, 193 - ram[14], 6, 8))
    scene.sights += [Sight(f"car in lane {lane + 1}", ram[117 - lane] - 3, 28 + 16 * lane, 8, 8) for lane in range(10)]
    return scene


_SLOPE = {2: "gate between two flags", 5: "mogul", 85: "tree"}


def skiing(ram: Sequence[int]) -> Scene:
    """The skier, and the gates, moguls and trees that can be seen."""
    clock = f"{decimal(ram[104])}:{decimal(ram[105]):02}.{decimal(ram[106]):02}"
    scene = Scene([f"gates left: {decimal(ram[107])}", f"clock: {clock}"])
    scene.sights.append(Sight("you", ram[25] + 1, ram[26] - 80, 8, 18))
    for number in range(8):
        name = _SLOPE.get(ram[70 + number])
        x, y = ram[62 + number], 178 - ram[86 + number] + 4
        if name is None or not 28 < y < 170:
            continue
        # A gate's place is that of its left flag; the right one is 32 pixels further.
        width = 37 if ram[70 + number] == 2 else 16
        scene.sights.append(Sight(name, x + 1, y, width, 14))
    return scene


_GHOSTS = ("Sue (orange)", "Inky (cyan)", "Pinky (pink)", "Blinky (red)")


def ms_pacman(ram: Sequence[int]) -> Scene:
    """Ms. Pac-Man and the four ghosts, and how many dots were eaten."""
    scene = Scene([f"dots eaten: {ram[119]}"])
    scene.sights.append(Sight("you", ram[10] - 12, ram[16] + 1, 8, 10))
    scene.sights += [
        Sight(f"ghost {name}", ram[6 + number] - 12, ram[12 + number] + 1, 8, 10) for number, name in enumerate(_GHOSTS)
    ]
    if ram[11] and ram[17]:
        scene.sights.append(Sight("fruit", ram[11] - 12, ram[17] + 1, 8, 10))
    return scene
