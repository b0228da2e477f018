"""The inference server in its process, over a tiny model with random weights."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

from openenv_trl.training.tiny_policy import make_tiny_policy
from openenv_trl.types import Tool

spec = spec_from_file_location("inference_server", Path(__file__).parent / "running.py")
assert spec is not None
assert spec.loader is not None
inference_server: Any = module_from_spec(spec)
spec.loader.exec_module(inference_server)


@pytest.fixture(scope="session")
def policy_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("policy")
    texts = ["Your hand: 10, 6. Sum 16, no usable ace. The dealer shows 7."] * 8
    make_tiny_policy(path, texts, [Tool(name="hit"), Tool(name="stand")], layers=1, hidden_size=32)
    return path


@pytest.fixture(scope="session")
def process(policy_path: Path) -> Iterator[Any]:
    with inference_server.InferenceServer(policy_path) as server:
        yield server


@pytest.fixture
def server(process: Any) -> Iterator[Any]:
    """The running server, without faults before and after."""
    process.faults()
    yield process
    process.faults()
    process.post("/resume", {})
