"""environment_reward_func under a real GRPOTrainer with plain generation, over real server processes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
import torch
from datasets import Dataset
from transformers import AutoTokenizer
from trl import GRPOConfig, GRPOTrainer

from openenv_trl.errors import ConfigurationError, RolloutFailureError
from openenv_trl.training.completion_actions import CalledTool, TextAction, actions_in
from openenv_trl.training.reward_func import environment_reward_func

from .factory_environments import call
from .factory_fixtures import LIMITS, PROMPT, rows


class Rewarded:
    """One training step whose completions are given, and what came of it."""

    def __init__(
        self, path: Path, output: Path, reward: Any, dataset: Any, completions: list[str], **settings: Any
    ) -> None:
        tokenizer = AutoTokenizer.from_pretrained(path)
        self.trainer = GRPOTrainer(
            model=str(path),
            processing_class=tokenizer,
            reward_funcs=[reward],
            train_dataset=dataset,
            args=GRPOConfig(
                output_dir=str(output),
                max_steps=1,
                per_device_train_batch_size=8,
                num_generations=4,
                max_completion_length=300,
                logging_steps=1,
                use_cpu=True,
                bf16=False,
                gradient_checkpointing=False,
                save_strategy="no",
                report_to="none",
                disable_tqdm=True,
                shuffle_dataset=False,
                **settings,
            ),
        )
        ids = [tokenizer.encode(completions[i % len(completions)] + "<|im_end|>") for i in range(8)]
        self.trainer._generate_single_turn = lambda *_, **__: (ids, None)  # type: ignore[method-assign]
        self.rewards: list[list[float]] = []
        original = self.trainer._calculate_rewards

        def keep(*arguments: Any) -> Any:
            values = original(*arguments)
            self.rewards = values.tolist()
            return values

        self.trainer._calculate_rewards = keep  # type: ignore[method-assign]
        self.trainer.train()
        self.log = self.trainer.state.log_history[0]

    @property
    def first_four(self) -> list[float | None]:
        return [None if value != value else value for [value] in self.rewards[:4]]


@pytest.fixture
def reward(caller_path: Path, tmp_path: Path) -> Callable[..., Rewarded]:
    return lambda function, dataset, *completions, **settings: Rewarded(
        caller_path, tmp_path, function, dataset, list(completions), **settings
    )


def test_tool_calls_are_executed_and_rewarded_per_completion(
    reward: Callable[..., Rewarded], obedient_url: str
) -> None:
    two = call("move", number=3) + "\n" + call("move", number=9) + "\n" + call("move", number=100)
    said = [two, call("move", number=1), call("move", number="x"), "I would rather not."]
    with environment_reward_func(obedient_url, limits=LIMITS, name="moves") as function:
        rewarded = reward(function, rows(), *said)
        assert rewarded.first_four == [12.0, 1.0, -1.0, -1.0], "in order, until the environment is done"
        assert rewarded.log["rewards/moves/mean"] == pytest.approx(11 / 4)
        assert rewarded.log["moves/failed_fraction"] == 0.0
        assert rewarded.log["moves/invalid_actions"] == 0.5


def test_completions_are_executed_side_by_side(
    reward: Callable[..., Rewarded], obedient_url: str, tmp_path: Path
) -> None:
    with environment_reward_func(obedient_url, limits=LIMITS) as function:
        rewarded = reward(function, rows(), call("meet", place=str(tmp_path), count=8))
    assert rewarded.first_four == [1.0] * 4
    assert rewarded.log["environment_reward/episodes"] == 8.0


def test_completions_wait_for_sessions_where_there_are_few(reward: Callable[..., Rewarded], narrow_url: str) -> None:
    with environment_reward_func(narrow_url, limits=LIMITS) as function:
        assert reward(function, rows(), call("move", number=2)).first_four == [2.0] * 4
        assert function.metrics["failed_fraction"] == 0.0


@pytest.mark.parametrize("how", ["raises", "exits", "nan", "hangs"])
def test_what_breaks_is_none_and_never_a_number(reward: Callable[..., Rewarded], obedient_url: str, how: str) -> None:
    limits = LIMITS.model_copy(update={"step_timeout_s": 2.0 if how == "hangs" else 60.0})
    with environment_reward_func(obedient_url, limits=limits) as function:
        rewarded = reward(function, rows(), call("fail", how=how), call("move", number=2))
        assert rewarded.first_four == [None, 2.0, None, 2.0]
        assert rewarded.log["reward"] == 2.0
        assert torch.tensor(rewarded.log["loss"]).isfinite()
        assert function.metrics["tried_again"] == 4.0, "each once more, in a fresh session"


def test_a_reset_that_raises_once_is_tried_again(
    reward: Callable[..., Rewarded], obedient_url: str, tmp_path: Path
) -> None:
    with environment_reward_func(obedient_url, limits=LIMITS) as function:
        rewarded = reward(function, rows(way="raises once", mark=str(tmp_path / "mark")), call("move", number=2))
        assert rewarded.first_four == [2.0] * 4


def test_a_batch_that_failed_stops_training_and_says_why(reward: Callable[..., Rewarded], obedient_url: str) -> None:
    with (
        environment_reward_func(obedient_url, limits=LIMITS, max_skipped_steps=0) as function,
        pytest.raises(RolloutFailureError, match="the deck is missing"),
    ):
        reward(function, rows(way="raises"), call("move", number=2))


def test_text_is_read_by_a_function_and_the_columns_reach_reset(
    reward: Callable[..., Rewarded], toolless_url: str
) -> None:
    def read(text: str) -> dict[str, Any] | None:
        return {"number": int(text)} if text.strip().isdigit() else None

    data = Dataset.from_list([{"prompt": "Guess.", "seed": i} for i in range(2)])
    with environment_reward_func(toolless_url, limits=LIMITS, parse=read, invalid_action_reward=-3.0) as function:
        assert reward(function, data, "4", "7", "none", "9").first_four == [4.0, 7.0, -3.0, 9.0]


def test_an_action_that_the_environment_refuses_is_the_models_mistake(
    reward: Callable[..., Rewarded], toolless_url: str
) -> None:
    def read(text: str) -> list[dict[str, Any]]:
        return [{"number": 2}, {"number": 1, "how": text}]

    with environment_reward_func(toolless_url, limits=LIMITS, parse=read) as function:
        assert reward(function, rows(), "softly", "wildly").first_four == [3.0, 1.0, 3.0, 1.0]
    with environment_reward_func(toolless_url, limits=LIMITS, parse=read, invalid_action_reward=None) as function:
        assert reward(function, rows(), "softly", "wildly").first_four == [3.0, None, 3.0, None]


def test_text_without_a_function_to_read_it_is_an_error(reward: Callable[..., Rewarded], obedient_url: str) -> None:
    data = Dataset.from_list([{"prompt": "Guess.", "seed": i} for i in range(2)])
    with (
        environment_reward_func(obedient_url, limits=LIMITS) as function,
        pytest.raises(ConfigurationError, match="parse=function"),
    ):
        reward(function, data, "4")


def test_it_can_be_called_without_a_trainer(obedient_url: str) -> None:
    logged: dict[str, Any] = {}
    with environment_reward_func(obedient_url, limits=LIMITS, columns=["seed"]) as function:
        message = {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"type": "function", "function": {"name": "move", "arguments": {"number": 4}}}],
        }
        rewards = anyio.run(
            lambda: function(
                prompts=[PROMPT],
                completions=[[message]],
                seed=[1],
                way=["raises"],
                log_extra=lambda name, values: logged.update({name: values}),
            )
        )
    assert rewards == [4.0]
    assert logged == {"environment_reward_end": ["executed"]}


def test_a_column_that_is_missing_or_of_another_length_is_an_error(obedient_url: str) -> None:
    with environment_reward_func(obedient_url, limits=LIMITS, columns=["sed"]) as function:
        with pytest.raises(ConfigurationError, match="no columns"):
            anyio.run(lambda: function(completions=["a"], seed=[1]))
        function._columns = None
        with pytest.raises(ConfigurationError, match="list of 1 values"):
            anyio.run(lambda: function(completions=["a"], seed=[1, 2]))


def test_actions_are_read_in_their_order_from_what_models_may_write() -> None:
    said = [
        {"role": "user", "content": "no"},
        {"role": "assistant", "tool_calls": [{"function": {"name": "a", "arguments": {"x": 1}}}, {"name": "b"}]},
        {"role": "tool", "content": "{}"},
        {"role": "assistant", "tool_calls": ["nonsense"], "content": None},
    ]
    assert actions_in(said, None) == [CalledTool("a", {"x": 1}), CalledTool("b", {}), CalledTool("", {})]
    assert actions_in([{"role": "assistant", "content": "{}"}], json.loads) == [TextAction({})]
    as_text = [{"function": {"name": "a", "arguments": '{"x": 1}'}}, {"function": {"name": "a", "arguments": "{x"}}]
    assert actions_in([{"role": "assistant", "tool_calls": as_text}], None) == [
        CalledTool("a", {"x": 1}),
        CalledTool("a", "{x"),
    ]
    with pytest.raises(ConfigurationError, match="return None"):
        actions_in("not json", json.loads)
    with pytest.raises(ConfigurationError, match="list of dicts"):
        actions_in("[1]", json.loads)
