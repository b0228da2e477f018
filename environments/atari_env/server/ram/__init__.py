"""What the console's 128 bytes mean, for the games where that is known.

The addresses are those that others published: AtariARI (A. Anand et al., "Unsupervised State Representation Learning in
Atari", 2019, ``atariari/benchmark/ram_annotations.py``) and OCAtari (Q. Delfosse et al., "OCAtari: Object-Centric Atari
2600 Reinforcement Learning Environments", 2023, ``ocatari/ram``). The offsets from a byte to a place on the screen are
measured, and the tests hold every named object to the pixels of its colour.
"""

from __future__ import annotations

from atari_env.server.ram.ball_games import boxing, breakout, pong, tennis
from atari_env.server.ram.chases import freeway, ms_pacman, skiing
from atari_env.server.ram.shooters import seaquest, space_invaders
from atari_env.server.ram.sights import Reader, Scene, Sight

READERS: dict[str, Reader] = {
    "boxing": boxing,
    "breakout": breakout,
    "freeway": freeway,
    "ms_pacman": ms_pacman,
    "pong": pong,
    "seaquest": seaquest,
    "skiing": skiing,
    "space_invaders": space_invaders,
    "tennis": tennis,
}
"""For games whose RAM is known: what reads it."""

HINTS: dict[str, str] = {
    "boxing": "You are the white boxer. Each punch that lands scores 1; a knock-out at 100 ends the round.",
    "breakout": "FIRE serves the ball. Bounce it off your paddle into the bricks; a ball that you miss costs a life.",
    "freeway": "Walk your chicken from the bottom to the top: each crossing scores 1, and a car throws you back.",
    "ms_pacman": "Eat the dots and keep away from the ghosts; after a power pill in a corner you can eat those too.",
    "pong": "You are the right paddle. RIGHT moves it up, LEFT moves it down; FIRE serves. 21 points win.",
    "seaquest": "Shoot fish and submarines, pick up divers, and surface for air (y 46) before the oxygen is used up.",
    "skiing": "Ski between each pair of flags. The score is the time in hundredths of a second, counted as negative.",
    "space_invaders": "Shoot the invaders and keep away from their bombs; the shields stop shots of both sides.",
    "tennis": "Run to where the ball comes down and hit it back with FIRE. You change ends every other game.",
}
"""For the same games: how they are played, in a sentence or two."""

MAZES = frozenset({"ms_pacman"})
"""Games that are known and have walls that are not: they get the grid of the screen too."""

__all__ = ["HINTS", "MAZES", "READERS", "Reader", "Scene", "Sight"]
