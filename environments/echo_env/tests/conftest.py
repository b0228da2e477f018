"""An echo server in a process of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from openenv_trl.providers import ProcessProvider

PACKAGE = Path(__file__).resolve().parents[1]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def echo_server() -> Iterator[str]:
    with ProcessProvider(str(PACKAGE)) as provider:
        yield provider.replicas[0].base_url
