"""Chance that no user's seed decides, and that takes nothing from a seeded run.

Trainers seed the module ``random`` as they begin. Pauses, ports and the like that came from it would be the same in all
processes of a run, just where they are to differ; and each number taken from it, as after a lost connection, would
change what the user's own code draws next.
"""

from __future__ import annotations

import random

CHANCE = random.SystemRandom()
"""In place of the functions of the module ``random``."""
