"""Real parts for the trainer's tests: server processes, a tiny model, and GRPOTrainer itself."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from trl import GRPOConfig, GRPOTrainer

from openenv_trl import ProcessProvider, environment_reward
from openenv_trl.training.tiny_policy import make_tiny_policy
from openenv_trl.types import Tool

from .factory_fixtures import caller_path, narrow_url, obedient, obedient_url, play, toolless_url  # noqa: F401

torch.set_num_threads(1)
os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"

BLACKJACK = Path(__file__).parents[2] / "environments" / "blackjack_env"

UNRULY = '''
import time
from pathlib import Path
from typing import Any
from openenv_trl import Action, Environment, Observation, State, create_app, tool
from openenv_trl.errors import ConfigurationError

class Unruly(Environment[Action, Observation, State]):
    """Fails in the way that its reset is told to."""
    SUPPORTS_CONCURRENT_SESSIONS = True
    way = "none"
    def __init__(self): self._state = State()
    def reset(self, seed=None, episode_id=None, way="none", until=None, **kwargs: Any):
        self._state = State(episode_id=episode_id); self.way = way; self.until = until
        if way == "reset raises": raise RuntimeError("the deck is missing")
        if way == "reset refuses": raise ConfigurationError("there is no deck of that name")
        return Observation(metadata={})
    def step(self, action, timeout_s=None, **kwargs: Any): return self._end()
    @property
    def state(self): return self._state
    @tool
    def hit(self) -> Observation:
        "Take a card."
        return self._end()
    @tool
    def stand(self) -> Observation:
        "Stop."
        return self._end()
    def _end(self):
        self._state.step_count += 1
        if self.way == "step raises": raise RuntimeError("the table broke")
        if self.way == "step hangs": self._hang()
        if self.way == "nan": return Observation(done=True, reward=float("nan"))
        return Observation(done=True, reward=1.0)

    def _hang(self):
        "Until a file is there, if one was named, and for a while otherwise."
        ends = time.monotonic() + (250 if self.until else 20)
        while time.monotonic() < ends and not (self.until and Path(self.until).exists()):
            time.sleep(0.05)

app = create_app(Unruly, Action, Observation, env_name="unruly_env", max_concurrent_envs=64)
'''


@pytest.fixture(scope="session")
def blackjack_url() -> Iterator[str]:
    with ProcessProvider(str(BLACKJACK), env_vars={"MAX_CONCURRENT_ENVS": "256"}) as servers:
        yield servers.base_urls[0]


@pytest.fixture(scope="session")
def unruly_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("environments") / "unruly_env"
    (folder / "server").mkdir(parents=True)
    (folder / "openenv.yaml").write_text("spec_version: 1\nname: unruly_env\napp: server.app:app\nport: 8000\n")
    (folder / "__init__.py").touch()
    (folder / "server" / "__init__.py").touch()
    (folder / "server" / "app.py").write_text(UNRULY)
    with ProcessProvider(str(folder)) as servers:
        yield servers.base_urls[0]


@pytest.fixture(scope="session")
def tiny_policy_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model with random weights."""
    path = tmp_path_factory.mktemp("policy")
    texts = ["Your hand: 10, 6. Sum 16, no usable ace. The dealer shows 7."] * 8
    make_tiny_policy(path, texts, [Tool(name="hit"), Tool(name="stand")], layers=1, hidden_size=32)
    return path


def trainer_maker(folder: Path, policy: Path) -> Callable[..., GRPOTrainer]:
    """Make a GRPOTrainer over a rollout and rows: 8 rows a batch, 2 prompts of 4 generations.

    ``parts`` are arguments of the trainer itself; all others are settings of its GRPOConfig.
    """

    def make(rollout: Any, rows: Any, parts: dict[str, Any] | None = None, **changes: Any) -> GRPOTrainer:
        settings = {
            "output_dir": str(folder),
            "max_steps": 2,
            "per_device_train_batch_size": 8,
            "num_generations": 4,
            "max_completion_length": 120,
            "learning_rate": 1e-3,
            "logging_steps": 1,
            "use_cpu": True,
            "bf16": False,
            "gradient_checkpointing": False,
            "save_strategy": "no",
            "report_to": "none",
            "disable_tqdm": True,
            "shuffle_dataset": False,
            **changes,
        }
        from transformers import AutoTokenizer

        chosen = {
            "model": str(policy),
            "processing_class": AutoTokenizer.from_pretrained(policy),
            "reward_funcs": [environment_reward(unfinished=-1.0)],
            "rollout_func": rollout,
            **(parts or {}),
        }
        return GRPOTrainer(train_dataset=rows, args=GRPOConfig(**settings), **chosen)

    return make


@pytest.fixture
def make_trainer(tmp_path: Path, tiny_policy_path: Path) -> Callable[..., GRPOTrainer]:
    """Makes trainers for one test: see `trainer_maker`."""
    return trainer_maker(tmp_path, tiny_policy_path)


@pytest.fixture(scope="module")
def module_trainer(tmp_path_factory: pytest.TempPathFactory, tiny_policy_path: Path) -> Callable[..., GRPOTrainer]:
    """Makes trainers that the tests of a module share."""
    return trainer_maker(tmp_path_factory.mktemp("trainer"), tiny_policy_path)
