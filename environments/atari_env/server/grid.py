"""A screen as a grid of letters: what is on it, for games whose objects nobody has named.

Each cell shows the rarest colour in it, since what matters on a screen (a ball, a shot) is small, and what is large is
the background. The screen's commonest colour is a dot.
"""

from __future__ import annotations

import colorsys
import functools

import numpy as np

from atari_env.server.console import Pixels

_LETTERS = {
    "black": "k",
    "grey": "e",
    "white": "w",
    "red": "r",
    "orange": "o",
    "yellow": "y",
    "green": "g",
    "cyan": "c",
    "blue": "b",
    "purple": "p",
}
"""A colour's letter: large where the colour is bright, small where it is dark."""


def grid_of(palette: Pixels, rgb: Pixels, columns: int, rows: int) -> list[str]:
    """The screen as lines of text, and last a line that says what the letters are.

    Args:
        palette: The screen's colours by number: height, width.
        rgb: The same by red, green and blue: height, width, 3.
        columns: Cells in a line, at most the screen's width.
        rows: Lines, at most the screen's height.
    """
    counts = np.bincount(palette.ravel(), minlength=256)
    rarest_first = np.argsort(counts, kind="stable")
    rank = np.empty(256, dtype=np.intp)
    rank[rarest_first] = np.arange(256)
    height, width = palette.shape
    top = np.linspace(0, height, rows, endpoint=False).astype(int)
    left = np.linspace(0, width, columns, endpoint=False).astype(int)
    ranks = np.minimum.reduceat(np.minimum.reduceat(rank[palette], top, axis=0), left, axis=1)
    cells = rarest_first[ranks]
    background = int(rarest_first[-1])
    names: dict[int, str] = {}
    for number in np.unique(cells):
        # The colour of one of its pixels: the palette itself is not in ALE's interface.
        at = int(np.argmax(palette.ravel() == number))
        names[int(number)] = _name_of(*map(int, rgb.reshape(-1, 3)[at]))
    letter = {number: "." if number == background else _letter_of(name) for number, name in names.items()}
    lines = ["".join(letter[int(cell)] for cell in line) for line in cells]
    legend = {letter[number]: name for number, name in names.items()}
    return [*lines, ", ".join(f"{sign} {legend[sign]}" for sign in sorted(legend))]


def _letter_of(name: str) -> str:
    shade, _, colour = name.rpartition(" ")
    letter = _LETTERS[colour]
    return letter.upper() if shade == "bright" else letter


@functools.cache
def _name_of(red: int, green: int, blue: int) -> str:
    hue, lightness, saturation = colorsys.rgb_to_hls(red / 255, green / 255, blue / 255)
    if lightness < 0.08:
        return "black"
    if saturation < 0.15:
        return "white" if lightness > 0.8 else "bright grey" if lightness > 0.5 else "grey"
    degrees = hue * 360
    bounds = (
        (15, "red"),
        (45, "orange"),
        (70, "yellow"),
        (160, "green"),
        (200, "cyan"),
        (260, "blue"),
        (330, "purple"),
    )
    colour = next((name for end, name in bounds if degrees < end), "red")
    return f"{'bright' if lightness > 0.45 else 'dark'} {colour}"
