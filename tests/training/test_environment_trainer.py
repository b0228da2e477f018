"""EnvironmentGRPOTrainer: what runs side by side, and that the training is otherwise TRL's own."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import wait
from typing import Any

import pytest
import torch
from trl import GRPOTrainer

from openenv_trl.training import environment_class
from openenv_trl.training.environment_class import FactoryEnvironment
from openenv_trl.training.environment_trainer import EnvironmentGRPOTrainer
from openenv_trl.training.started_calls import StartedCalls

from .factory_environments import call
from .factory_fixtures import Played, rows

Play = Callable[..., Played]
Make = Callable[..., Any]


def test_the_resets_of_a_batch_run_side_by_side(play: Play, obedient: Make, tmp_path: Any) -> None:
    played = play(
        EnvironmentGRPOTrainer,
        obedient(),
        rows(way="meets", mark=str(tmp_path), meet=8),
        call("move", number=9),
    )
    assert all('"said":"together"' in text for text in played.prompts)


def test_the_tool_calls_of_a_turn_run_side_by_side(play: Play, obedient: Make, tmp_path: Any) -> None:
    def say(turn: int, _: str) -> str:
        return call("meet", place=f"{tmp_path}{turn}", count=8) if turn < 2 else call("move", number=9)

    played = play(EnvironmentGRPOTrainer, obedient(), rows(), say)
    assert all([a.count("together") for a in answers[:2]] == [1, 1] for answers in played.answers)


def test_calls_of_one_message_are_made_in_order(play: Play, obedient: Make) -> None:
    said = call("move", number=1) + "\n" + call("look") + "\n" + call("move", number=9)
    played = play(EnvironmentGRPOTrainer, obedient(), rows(), said)
    for answers in played.answers:
        assert ["Moved 1" in answers[0], "cells" in answers[1], "Moved 9" in answers[2]] == [True] * 3
    assert played.log["rewards/environment_reward/mean"] == 10.0


@pytest.mark.parametrize("length", [400, 90, 60])
def test_rewards_are_those_of_the_serial_loop_also_where_answers_do_not_fit(
    play: Play, obedient: Make, length: int
) -> None:
    def say(turn: int, text: str) -> str:
        number = 1 if "Seed 0" in text else 22222222
        return "well" if turn > 3 else call("move", number=number if turn % 2 else 3)

    rewards: list[Any] = []
    for kind in (GRPOTrainer, EnvironmentGRPOTrainer):
        factory = obedient()
        played = play(kind, factory, rows(), say, args={"max_completion_length": length})
        rewards.append((played.log["rewards/environment_reward/mean"], played.batches[0]["advantages"].tolist()))
        if kind is EnvironmentGRPOTrainer:
            assert played.trainer._loop is None
            assert factory.metrics["failed_fraction"] == 0.0
    assert rewards[0] == rewards[1]


def test_no_call_is_made_by_itself(play: Play, obedient: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    alone: list[str] = []
    monkeypatch.setattr(environment_class, "_acting", lambda *_: alone.append("called"))
    played = play(EnvironmentGRPOTrainer, obedient(), rows(), lambda turn, _: call("move", number=1 if turn < 3 else 9))
    assert alone == []
    assert played.log["rewards/environment_reward/mean"] == 12.0
    assert played.generated == [8] * 4


def test_unknown_tools_beside_the_environments_keep_the_order(play: Play, obedient: Make) -> None:
    def say(turn: int, text: str) -> str:
        if turn == 0:
            return call("fold") if "Seed 0" in text else call("fold") + "\n" + call("move", number=2)
        return call("move", number=9)

    played = play(EnvironmentGRPOTrainer, obedient(), rows(), say)
    for answers, prompt in zip(played.answers, played.prompts, strict=True):
        expected = ["fold", "Moved 9"] if "Seed 0" in prompt else ["fold", "Moved 2", "Moved 9"]
        assert [word in answer for word, answer in zip(expected, answers, strict=True)] == [True] * len(expected)
    assert played.log["rewards/environment_reward/mean"] == 10.0


def test_no_call_is_made_for_the_last_turn_that_trl_does_not_execute(play: Play, obedient: Make) -> None:
    factory = obedient()
    played = play(
        EnvironmentGRPOTrainer, factory, rows(), call("move", number=1), args={"max_tool_calling_iterations": 2}
    )
    assert factory.metrics["steps"] == 2.0
    assert played.log["rewards/environment_reward/mean"] == 2.0


def test_a_call_that_cannot_be_answered_never_reaches_the_environment(play: Play, obedient: Make) -> None:
    said = call("move", number=1)
    factory = obedient()
    played = play(EnvironmentGRPOTrainer, factory, rows(), said, args={"max_completion_length": 400})
    length = len(played.tokenizer.encode(said + "<|im_end|>"))
    factory = obedient(unfinished=-1.0)
    full = play(EnvironmentGRPOTrainer, factory, rows(), said, args={"max_completion_length": length})
    assert factory.metrics["steps"] == 0.0
    assert full.log["rewards/environment_reward/mean"] == -1.0


def test_an_episode_that_is_over_leaves_the_loop_and_ends_as_the_model_ended_it(play: Play, obedient: Make) -> None:
    def say(turn: int, text: str) -> str:
        return call("move", number=9 if "Seed 0" in text or turn == 2 else 1)

    played = play(EnvironmentGRPOTrainer, obedient(), rows(), say)
    assert played.generated == [8, 4, 4], "nothing is generated for an episode that is over"
    assert played.log["completions/clipped_ratio"] == 0.0
    for ids, mask, seed_0 in zip(
        played.batches[0]["completion_ids"].tolist(),
        played.batches[0]["completion_mask"].tolist(),
        ["Seed 0" in text for text in played.prompts],
        strict=True,
    ):
        text = played.tokenizer.decode([i for i, on in zip(ids, mask, strict=True) if on])
        assert text.endswith("</tool_call><|im_end|>")
        if seed_0:
            assert text == call("move", number=9) + "<|im_end|>"


def test_only_what_the_model_wrote_is_trained_on(play: Play, obedient: Make) -> None:
    played = play(EnvironmentGRPOTrainer, obedient(), rows(), lambda turn, _: call("move", number=9 if turn else 1))
    batch = played.batches[0]
    trained = batch["tool_mask"].bool() & batch["completion_mask"].bool()
    expected = call("move", number=1) + "<|im_end|>" + call("move", number=9) + "<|im_end|>"
    for ids, on in zip(batch["completion_ids"], trained, strict=True):
        assert played.tokenizer.decode(ids[on].tolist()) == expected


def test_a_row_without_a_seed_gets_one_that_its_group_shares(play: Play, obedient: Make) -> None:
    played = play(EnvironmentGRPOTrainer, obedient(), rows().remove_columns("seed"), call("move", number=9))
    groups = [set(played.prompts[:4]), set(played.prompts[4:])]
    assert [len(group) for group in groups] == [1, 1]
    assert groups[0] != groups[1]
    assert "None" not in played.prompts[0]


def test_a_call_that_the_loop_makes_otherwise_spoils_the_episode_and_is_not_mixed_up(
    play: Play, obedient: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = FactoryEnvironment._call

    def other(environment: FactoryEnvironment, name: str, arguments: dict[str, Any]) -> str:
        return original(environment, name, {"number": 5} if arguments == {"number": 1} else arguments)

    take = StartedCalls.take

    def take_when_made(calls: StartedCalls, name: str, arguments: Any) -> Any:
        if calls._waiting:  # one that was not begun yet would be dropped, and spoil nothing
            wait([calls._waiting[0].answer], timeout=60)
        return take(calls, name, arguments)

    monkeypatch.setattr(FactoryEnvironment, "_call", other)
    monkeypatch.setattr(StartedCalls, "take", take_when_made)

    def say(_: int, text: str) -> str:
        return call("move", number=1 if "Seed 0" in text else 9)

    factory = obedient()
    played = play(EnvironmentGRPOTrainer, factory, rows(), say)
    assert factory.metrics["failed/protocol_error"] + played.log["rewards/environment_reward/mean"] == 4.0 + 9.0


def test_a_real_model_trains(obedient: Make, caller_path: Any, tmp_path: Any) -> None:
    from transformers import AutoTokenizer
    from trl import GRPOConfig

    trainer = EnvironmentGRPOTrainer(
        model=str(caller_path),
        processing_class=AutoTokenizer.from_pretrained(caller_path),
        environment_factory=obedient(unfinished=-1.0),
        train_dataset=rows(4),
        args=GRPOConfig(
            output_dir=str(tmp_path),
            max_steps=2,
            per_device_train_batch_size=8,
            num_generations=4,
            max_completion_length=24,
            logging_steps=1,
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
        ),
    )
    trainer.train()
    assert [entry["step"] for entry in trainer.state.log_history if "reward" in entry] == [1, 2]
    assert all(torch.isfinite(value).all() for value in trainer.model.state_dict().values())
