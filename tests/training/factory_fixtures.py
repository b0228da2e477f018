"""For the tests of environments in TRL's own loop: servers, trainers, and a model that says what it is told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset
from transformers import AutoTokenizer
from trl import GRPOConfig, GRPOTrainer

from openenv_trl import ProcessProvider, RolloutLimits
from openenv_trl.training.environment_factory import make_environment_factory
from openenv_trl.training.environment_trainer import EnvironmentGRPOTrainer
from openenv_trl.training.tiny_policy import make_tiny_policy
from openenv_trl.types import Tool

from .factory_environments import write_package

PROMPT = [{"role": "user", "content": "Play."}]
LIMITS = RolloutLimits(connect_timeout_s=60, max_attempts=2, retry_delay_s=0.01)


def _served(folder: Path, app: str) -> Iterator[str]:
    with ProcessProvider(str(write_package(folder / app, app))) as servers:
        yield servers.base_urls[0]


@pytest.fixture(scope="session")
def obedient_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    yield from _served(tmp_path_factory.mktemp("obedient"), "app")


@pytest.fixture(scope="session")
def narrow_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server that allows one session."""
    yield from _served(tmp_path_factory.mktemp("narrow"), "narrow")


@pytest.fixture(scope="session")
def toolless_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    yield from _served(tmp_path_factory.mktemp("toolless"), "toolless")


@pytest.fixture(scope="session")
def caller_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model that knows the words of tool calls."""
    path = tmp_path_factory.mktemp("caller")
    fields = {"number": {"type": "integer"}, "how": {"type": "string"}, "place": {"type": "string"}}
    tools = [
        Tool(name=name, input_schema={"type": "object", "properties": fields})
        for name in ("move", "look", "meet", "fail", "act")
    ]
    make_tiny_policy(path, ["Moved well. Seed."] * 8, tools, layers=1, hidden_size=32)
    return path


def rows(count: int = 2, **columns: Any) -> Dataset:
    return Dataset.from_list([{"prompt": PROMPT, "seed": i, **columns} for i in range(count)])


class Played:
    """One training step over a scripted model, and what came of it.

    Args:
        kind: The trainer's class.
        path: The model.
        monkeypatch: Replaces what the trainer generates.
        output: Where the trainer may write.
        factory: The environments.
        dataset: Rows.
        say: For the number of the turn in its episode and the context's text, what the model writes.
        more: Further settings of the trainer (``args_...``) and arguments.
    """

    def __init__(
        self,
        kind: type[GRPOTrainer],
        path: Path,
        monkeypatch: pytest.MonkeyPatch,
        output: Path,
        factory: Any,
        dataset: Any,
        say: Callable[[int, str], str],
        **more: Any,
    ) -> None:
        settings: dict[str, Any] = {
            "output_dir": str(output),
            "max_steps": 1,
            "per_device_train_batch_size": 8,
            "num_generations": 4,
            "max_completion_length": 400,
            "logging_steps": 1,
            "use_cpu": True,
            "bf16": False,
            "gradient_checkpointing": False,
            "save_strategy": "no",
            "report_to": "none",
            "disable_tqdm": True,
            "shuffle_dataset": False,
            **more.pop("args", {}),
        }
        self.batches: list[dict[str, Any]] = []
        self.completions: list[list[dict[str, Any]]] = []
        self.prompts: list[str] = []
        self.generated: list[int] = []
        tokenizer = AutoTokenizer.from_pretrained(path)

        def generate(trainer: Any, prompt_ids: list[list[int]], *_: Any, **__: Any) -> tuple[list[list[int]], None]:
            self.generated.append(len(prompt_ids))
            texts = [tokenizer.decode(ids) for ids in prompt_ids]
            self.prompts = self.prompts or texts
            turns = [text.count("<|im_start|>assistant\n") - 1 for text in texts]
            said = [say(turn, text) + "<|im_end|>" for turn, text in zip(turns, texts, strict=True)]
            return [tokenizer.encode(each)[: trainer.max_completion_length] for each in said], None

        def look(completions: list[Any], **_: Any) -> list[None]:
            self.completions += completions
            return [None] * len(completions)

        original = GRPOTrainer._generate_and_score_completions

        def keep(trainer: Any, inputs: Any) -> Any:
            self.batches.append(original(trainer, inputs))
            return self.batches[-1]

        monkeypatch.setattr(GRPOTrainer, "_generate_single_turn", generate)
        monkeypatch.setattr(GRPOTrainer, "_generate_and_score_completions", keep)
        self.trainer = kind(
            model=str(path),
            processing_class=tokenizer,
            reward_funcs=[look],
            train_dataset=dataset,
            environment_factory=factory,
            args=GRPOConfig(**settings),
            **more,
        )
        self.trainer.train()
        self.log = next((entry for entry in self.trainer.state.log_history if "reward" in entry), {})
        self.tokenizer = tokenizer

    @property
    def answers(self) -> list[list[str]]:
        """What each rollout's calls were answered."""
        return [[m["content"] for m in each if m["role"] == "tool"] for each in self.completions]


BOTH = pytest.mark.parametrize("kind", [GRPOTrainer, EnvironmentGRPOTrainer], ids=["stock", "concurrent"])


@pytest.fixture
def play(caller_path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Played]:
    def start(kind: type[GRPOTrainer], factory: Any, dataset: Any, say: Any, **more: Any) -> Played:
        spoken = say if callable(say) else lambda turn, _: say
        return Played(kind, caller_path, monkeypatch, tmp_path, factory, dataset, spoken, **more)

    return start


@pytest.fixture
def obedient(obedient_url: str) -> Iterator[Callable[..., Any]]:
    """Make factories over the obedient environment; closed with the test."""
    made: list[Any] = []

    def make(**settings: Any) -> Any:
        made.append(make_environment_factory(obedient_url, **{"limits": LIMITS, **settings}))
        return made[-1]

    yield make
    for factory in made:
        factory.close()
