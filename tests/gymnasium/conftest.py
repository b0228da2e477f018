"""Servers of Gymnasium environments and of others, each a process that runs until the tests end."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from openenv_trl.client.background import background_portal
from openenv_trl.providers import ProcessProvider

HERE = Path(__file__).parent
ROOT = HERE.parents[1]

sys.path.insert(0, str(HERE))  # for own_environments, which servers import too

Serve = Callable[[str], str]


@pytest.fixture(scope="session")
def serve() -> Iterator[Serve]:
    """Return the address of a server of ``gymnasium:NAME``, or of a folder of this repository."""
    portal = background_portal()
    providers: dict[str, ProcessProvider] = {}

    def start(target: str) -> str:
        provider = providers.get(target)
        if provider is None:
            variables = {"PYTHONPATH": str(HERE)}
            environment: str | Path = target if target.startswith("gymnasium:") else ROOT / target
            if target.startswith("gymnasium:") and "/" in target:  # which a provider takes for a path
                environment, variables["GYMNASIUM_ENV"] = "openenv_trl.gymnasium.app:app", target.partition(":")[2]
            provider = providers[target] = ProcessProvider(environment, env_vars=variables)
            portal.call(provider.start)
        return provider.replicas[0].base_url

    yield start
    for provider in providers.values():
        portal.call(provider.stop)


@pytest.fixture(scope="session")
def cart_pole(serve: Serve) -> str:
    """The address of a server of CartPole."""
    return serve("gymnasium:CartPole-v1")
