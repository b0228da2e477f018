"""A match as the tests play it: from a reset to its end, by numbers."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from openspiel_env.models import OpenSpielAction, OpenSpielObservation
from openspiel_env.server.openspiel_environment import OpenSpielEnvironment

PlayMatch = Callable[..., list[OpenSpielObservation]]


@pytest.fixture(scope="session")
def play_match() -> PlayMatch:
    """``play_match(environment, choices, **reset arguments)``: every observation of one match, with legal moves drawn
    by a generator seeded with ``choices``."""

    def play(
        environment: OpenSpielEnvironment, choices: int, steps: int = 1000, **reset_arguments: Any
    ) -> list[OpenSpielObservation]:
        generator = random.Random(choices)
        observations = [environment.reset(**reset_arguments)]
        while not observations[-1].done and len(observations) <= steps:
            action = generator.choice(observations[-1].legal_actions)
            observations.append(environment.step(OpenSpielAction(action_id=action)))
        return observations

    return play


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
