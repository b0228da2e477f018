"""The recipe's configuration is read by this version of TRL, and its inference server is a child that ends with it."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest
from trl import TrlParser

from openenv_trl.errors import ConfigurationError, ServerStartError
from openenv_trl.training.async_worker import inference_process, settings_from_config

ROOT = Path(__file__).parents[3]


def recipe() -> Any:
    spec = spec_from_file_location("async_grpo_recipe", ROOT / "recipes" / "async_grpo.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_recipes_configuration_is_read_whole() -> None:
    module = recipe()
    parser = TrlParser((module.EnvironmentArguments, module.AsyncGRPOConfig, module.InferenceArguments))
    config = str(ROOT / "configs" / "async_grpo" / "blackjack_cpu.yaml")
    environment, training, inference = parser.parse_args_and_config(["--config", config])
    assert (ROOT / str(environment.environment) / "openenv.yaml").is_file()
    settings = settings_from_config(training, scale_rewards=inference.scale_rewards)
    assert settings.rows_per_version == 512
    assert settings.max_inflight_episodes <= environment.sessions_per_server
    assert "{model}" in inference.inference_command
    with pytest.raises(ConfigurationError, match="inference_url"):
        module.InferenceArguments(model_name_or_path="model")


def test_the_recipes_policy_knows_the_size_of_the_models_vocabulary(playing_policy_path: Path) -> None:
    size = json.loads((playing_policy_path / "config.json").read_text())["vocab_size"]
    for model, known in ((str(playing_policy_path), size), ("/no/such/model", None)):
        inference = recipe().InferenceArguments(model_name_or_path=model, inference_url="http://localhost:1")
        assert inference.policy("http://localhost:1").vocabulary_size == known


def test_the_inference_server_ends_with_its_block(playing_policy_path: Path) -> None:
    command = f"{sys.executable} {ROOT / 'tests' / 'inference_server'} --model {{model}} --port {{port}}"
    with (
        inference_process(command, model=str(playing_policy_path)) as url,
        urllib.request.urlopen(f"{url}/v1/models", timeout=30) as answer,
    ):
        assert b"max_model_len" in answer.read()
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(f"{url}/health", timeout=5)
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert f"--model {playing_policy_path} --port {url.rsplit(':', 1)[1]}" not in listed


def test_a_command_that_cannot_serve_is_told_at_once() -> None:
    with pytest.raises(ConfigurationError, match="port"), inference_process("vllm serve {model}", model="m"):
        pass
    failing = f"{sys.executable} -c 'raise SystemExit(3)' {{port}}"
    with pytest.raises(ServerStartError, match="exit code 3"), inference_process(failing, model="m"):
        pass
