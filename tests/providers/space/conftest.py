"""A Hub of the tests' own, and a real environment server behind its Spaces."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from openenv_trl.providers import ProcessProvider

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1]))

from hub_stand_in import StandInHub, StandInSpace, stand_in_hub


@pytest.fixture(scope="session")
def blackjack_server() -> Iterator[str]:
    with ProcessProvider("environments/blackjack_env") as servers:
        yield servers.base_urls[0]


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, blackjack_server: str) -> Iterator[StandInHub]:
    """A Hub with one Space, ``owner/game``, that runs; nobody is logged in."""
    with stand_in_hub() as standing:
        standing.spaces["owner/game"] = StandInSpace(blackjack_server)
        monkeypatch.setenv("HF_ENDPOINT", standing.url)
        monkeypatch.setattr("huggingface_hub.get_token", lambda: None, raising=False)
        monkeypatch.delenv("HF_TOKEN", raising=False)
        yield standing
