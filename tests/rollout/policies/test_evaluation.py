"""A chat endpoint is measured on an experiment's environment, as a local model is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from openenv_trl.errors import ConfigurationError
from openenv_trl.evaluation.command import evaluate_experiment
from openenv_trl.experiment import load_experiment

ROOT = Path(__file__).parents[3]


def test_an_endpoint_plays_an_experiment_in_place_of_its_model(
    server: Any, model_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    experiment = load_experiment("configs/blackjack_cpu.yaml", ["--replicas", "1"])
    before = server.fault_state()["requests"]
    (report,) = evaluate_experiment(
        experiment,
        episodes=4,
        modes=[False],
        output=tmp_path / "report.json",
        quiet=True,
        endpoint=server.url,
        endpoint_model=str(model_path),
    )
    assert server.fault_state()["requests"] - before >= 4
    assert report.returns.count == 4
    assert report.failed == 0
    assert json.loads((tmp_path / "report.json").read_text())[0]["name"].startswith(model_path.name)
    with pytest.raises(ConfigurationError, match="--endpoint-model"):
        evaluate_experiment(experiment, endpoint=server.url)
