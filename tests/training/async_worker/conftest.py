"""Real parts for the asynchronous worker: an inference server's process, environment servers, AsyncGRPOTrainer."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset
from transformers import AutoTokenizer

from openenv_trl import ProcessProvider, RolloutLimits, environment_reward
from openenv_trl.rollout.policies import EndpointSettings, VllmPolicy
from openenv_trl.training.async_worker import AsyncRolloutSettings, EnvironmentRolloutWorker

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
PROMPT = [{"role": "user", "content": "Play blackjack."}]


def loaded(name: str, path: Path) -> Any:
    """A module by its path: test folders are no packages."""
    spec = spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


inference_server = loaded("inference_server", ROOT / "tests" / "inference_server" / "running.py")
playing = loaded("playing", HERE / "playing.py")


@pytest.fixture(scope="session")
def playing_policy_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model that calls the tools at random."""
    return playing.make_playing_policy(tmp_path_factory.mktemp("playing"))


@pytest.fixture(scope="session")
def inference_process(playing_policy_path: Path) -> Iterator[Any]:
    with inference_server.InferenceServer(playing_policy_path) as server:
        yield server


@pytest.fixture
def own_inference(playing_policy_path: Path) -> Iterator[Any]:
    """An inference server of the test's own, which it may kill; ``policy()`` asks it."""
    with inference_server.InferenceServer(playing_policy_path) as server:
        server.policy = lambda: policy_of(server)
        yield server


@pytest.fixture(scope="session")
def trial_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server of `trial_environment`."""
    folder = tmp_path_factory.mktemp("environments") / "trial_env"
    (folder / "server").mkdir(parents=True)
    (folder / "openenv.yaml").write_text("spec_version: 1\nname: trial_env\napp: server.app:app\nport: 8000\n")
    (folder / "__init__.py").touch()
    (folder / "server" / "__init__.py").touch()
    (folder / "server" / "app.py").write_text((HERE / "trial_environment.py").read_text())
    with ProcessProvider(str(folder)) as servers:
        yield servers.base_urls[0]


@pytest.fixture
def inference(inference_process: Any) -> Iterator[Any]:
    """The running inference server, without faults and with the first weights, before and after."""
    inference_process.faults()
    yield inference_process
    inference_process.faults()
    inference_process.post("/continue_generation", {})
    if inference_process.numbers()["weight_version"] != "default":
        body = {"model_path": inference_process.model, "weight_version": "default"}
        inference_process.post("/update_weights_from_disk", body)


@pytest.fixture(scope="session")
def tokenizer(playing_policy_path: Path) -> Any:
    return AutoTokenizer.from_pretrained(playing_policy_path)


@pytest.fixture
def rows() -> Callable[..., Any]:
    def make(count: int = 16, **columns: Any) -> Any:
        return Dataset.from_list([{"prompt": PROMPT, "seed": i, **columns} for i in range(count)])

    return make


@pytest.fixture
def make_worker(inference: Any, blackjack_url: str, tokenizer: Any, rows: Callable[..., Any]) -> Iterator[Any]:
    """Make a worker over the inference server and blackjack; each is stopped when the test ends."""
    made: list[EnvironmentRolloutWorker] = []

    def make(url: str | None = None, dataset: Any = None, **changes: Any) -> EnvironmentRolloutWorker:
        parts = {
            name: changes.pop(name)
            for name in ("policy", "reward_funcs", "reward_weights", "limits", "sampling", "columns", "on_group")
            if name in changes
        }
        settings = {"group_size": 4, "max_inflight_episodes": 8, "outage_delay_s": 0.02, "shuffle": False, **changes}
        worker = EnvironmentRolloutWorker(
            url or blackjack_url,
            tokenizer=tokenizer,
            dataset=rows() if dataset is None else dataset,
            policy=parts.pop("policy", None) or policy_of(inference),
            reward_funcs=parts.pop("reward_funcs", [environment_reward(unfinished=-1.0)]),
            limits=parts.pop(
                "limits",
                RolloutLimits(
                    max_turns=6,
                    max_completion_tokens=120,
                    max_new_tokens_per_turn=12,
                    max_attempts=2,
                    retry_delay_s=0.01,
                ),
            ),
            settings=AsyncRolloutSettings(**settings),
            **parts,
        )
        worker.update_model_version(1)  # as the trainer does before it starts the worker
        made.append(worker)
        return worker

    yield make
    for worker in made:
        worker.stop()


def policy_of(inference: Any, **settings: Any) -> VllmPolicy:
    endpoint = EndpointSettings(**{"away_timeout_s": 0.2, "backoff_s": 0.02, "backoff_max_s": 0.05, **settings})
    return VllmPolicy(inference.url, logprobs_mode="processed", settings=endpoint)


@pytest.fixture
def take() -> Callable[..., list[Any]]:
    """Take rows as the trainer does: wait for one, and look at the worker's health meanwhile."""

    def rows_of(worker: Any, count: int, *, timeout_s: float = 60.0) -> list[Any]:
        taken: list[Any] = []
        deadline = time.monotonic() + timeout_s
        while len(taken) < count:
            try:
                taken.append(worker.rollout_buffer.get(timeout=0.05))
            except queue.Empty:
                worker.check_health(300.0)
                assert time.monotonic() < deadline, f"only {len(taken)} of {count} rows came"
        return taken

    return rows_of


@pytest.fixture
def until() -> Callable[..., None]:
    """Wait for something that another thread or process brings about."""

    def wait(condition: Callable[[], Any], what: str, *, timeout_s: float = 30.0) -> None:
        deadline = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < deadline, f"did not come about: {what}"
            threading.Event().wait(0.01)

    return wait
