"""A server of Pong in a process of its own, and what the tests compare: the fingerprint of an episode's frames."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from atari_env.models import AtariAction
from atari_env.server.atari_environment import AtariEnvironment

from openenv_trl.providers import ProcessProvider

PACKAGE = Path(__file__).resolve().parents[1]


def fingerprint(environment: AtariEnvironment, steps: int, choices: int = 0, **reset_arguments: Any) -> str:
    """All frames, rewards, lives and ends of an episode whose actions a generator draws, as one digest."""
    generator = random.Random(choices)
    digest = hashlib.sha256()
    seen = environment.reset(**reset_arguments)
    for _ in range(steps):
        digest.update(seen.screen.tobytes())
        told = (seen.reward, seen.done, seen.lives, seen.frame_number, seen.episode_frame_number, seen.message)
        digest.update(repr(told).encode())
        if seen.done:
            break
        seen = environment.step(AtariAction(action_id=generator.choice(seen.legal_actions)))
    return digest.hexdigest()


@pytest.fixture(scope="session")
def fingerprint_of() -> Any:
    """``fingerprint(environment, steps, choices, **reset arguments)``."""
    return fingerprint


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def pong_server() -> Iterator[str]:
    with ProcessProvider(str(PACKAGE)) as provider:
        yield provider.replicas[0].base_url
