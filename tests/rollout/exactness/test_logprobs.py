"""On a real model: what a trainer computes for the row is what the sampler had, to the noise of floats."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="module")
def bridges() -> Any:
    pytest.importorskip("torch")
    path = Path(__file__).parents[3] / "benchmarks" / "_bridges.py"
    spec = importlib.util.spec_from_file_location("exactness_bridges", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def sampler(bridges: Any, new_tokenizer: Any) -> Any:
    from openenv_trl.training.tiny_policy import make_model

    tokenizer = new_tokenizer()
    return bridges.Sampler(make_model(tokenizer), tokenizer, seed=0)


@pytest.mark.parametrize("turns", [1, 3, 6])
def test_log_probs_of_the_row_are_those_of_the_sampling(bridges: Any, sampler: Any, turns: int) -> None:
    measured = bridges.ours(sampler, turns, 1)
    assert measured.messages == turns
    assert len(measured.differences) > 10 * turns
    assert max(measured.differences) < 1e-4
    assert sum(measured.differences) / len(measured.differences) < 1e-5
    assert measured.drift == 0.0


def test_a_row_that_is_encoded_again_is_another_row(bridges: Any, sampler: Any) -> None:
    measured = bridges.retokenised(sampler, 3, 1)
    assert measured.changed == 3
    assert sum(measured.differences) / len(measured.differences) > 1e-2
