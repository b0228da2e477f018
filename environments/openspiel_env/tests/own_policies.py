"""Policies of a user's own, as a server imports them by path."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path
from typing import Any


def corner(state: Any, player: int, generator: random.Random) -> int:
    """Any of tic-tac-toe's free corners, else any square."""
    legal = state.legal_actions(player)
    return generator.choice([action for action in legal if action in (0, 2, 6, 8)] or legal)


def impossible(state: Any, player: int, generator: random.Random) -> int:
    """A move that no game has."""
    return 10_000


def broken(state: Any, player: int, generator: random.Random) -> int:
    """None at all."""
    raise ZeroDivisionError("the policy's own mistake")


def held_up(state: Any, player: int, generator: random.Random) -> int:
    """The first legal move, once the file in OPENSPIEL_TEST_GATE is there: a computation that takes its time."""
    gate = Path(os.environ["OPENSPIEL_TEST_GATE"])
    (gate.parent / "entered").touch()
    for _ in range(6000):
        if gate.exists():
            break
        time.sleep(0.01)
    return state.legal_actions(player)[0]
