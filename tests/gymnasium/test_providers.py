"""A Gymnasium environment is named wherever an environment is: a provider starts its server."""

from __future__ import annotations

import pytest

from openenv_trl.client import GenericEnvClient
from openenv_trl.providers import ProcessProvider


@pytest.mark.parametrize("name", ["gymnasium:FrozenLake-v1?is_slippery=false", "gymnasium:ale_py:ALE/Pong-v5"])
def test_a_provider_starts_what_is_named(name: str) -> None:
    with ProcessProvider(name) as servers, GenericEnvClient(servers.base_urls[0]).sync() as env:
        assert not env.reset(seed=1).done
