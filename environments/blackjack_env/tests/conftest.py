"""A hand as the tests play it: from a reset to its end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from blackjack_env.models import BlackjackAction, BlackjackObservation
from blackjack_env.server.blackjack_environment import BlackjackEnvironment

Choose = Callable[[BlackjackObservation], str]
PlayHand = Callable[..., list[BlackjackObservation]]


@pytest.fixture(scope="session")
def play_hand() -> PlayHand:
    """``play_hand(environment, choose, **reset arguments)`` returns every observation of one hand."""
    moves = {move: BlackjackAction(move=move) for move in ("hit", "stand")}

    def play(environment: BlackjackEnvironment, choose: Choose, **reset_arguments: Any) -> list[BlackjackObservation]:
        observations = [environment.reset(**reset_arguments)]
        while not observations[-1].done:
            observations.append(environment.step(moves[choose(observations[-1])]))
        return observations

    return play


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
