"""make_environment_factory under a real GRPOTrainer, TRL's own and the concurrent one, over real server processes."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
import torch
from trl import GRPOTrainer

from openenv_trl.errors import ConfigurationError, ConnectionFailedError, RolloutFailureError
from openenv_trl.rollout import RolloutLimits
from openenv_trl.training import trl_version
from openenv_trl.training.environment_factory import make_environment_factories, make_environment_factory
from openenv_trl.training.environment_trainer import EnvironmentGRPOTrainer
from openenv_trl.training.episode_progress import OVER_TEXT
from openenv_trl.types import StepResult, Tool

from .factory_environments import call
from .factory_fixtures import BOTH, LIMITS, Played, rows
from .scripted import wait_for_sessions

Play = Callable[..., Played]
Make = Callable[..., Any]


def active_sessions(url: str) -> int:
    return httpx.get(f"{url}/capacity", trust_env=False).json()["active_sessions"]


@BOTH
def test_a_row_plays_to_its_end_and_is_rewarded(play: Play, obedient: Make, kind: Any) -> None:
    played = play(kind, obedient(), rows(), lambda turn, _: call("move", number=(1, 2, 9)[min(turn, 2)]))
    assert played.log["rewards/environment_reward/mean"] == 12.0
    assert played.prompts[0].count('Play.\n\n{"said":"Seed 0."') == 1
    for answers in played.answers:
        moved = [f'{{"said":"Moved {number} well.","cells":null}}' for number in (1, 2, 9)]
        assert answers[:3] == moved
        assert set(answers[3:]) <= {OVER_TEXT}


@BOTH
def test_only_the_environments_tools_can_be_called(play: Play, obedient: Make, kind: Any) -> None:
    factory = obedient()
    played = play(kind, factory, rows(), lambda turn, _: call("close") if turn == 0 else "well")
    assert sorted(tool.__name__ for tool in played.trainer.tools) == ["fail", "look", "meet", "move"]
    assert all(len(answers) == 1 and "close" in answers[0] for answers in played.answers)
    public = [n for n in dir(factory()) if not n.startswith("_")]
    assert sorted(public) == ["fail", "get_reward", "look", "meet", "move", "reset"]


@BOTH
def test_results_are_json_and_never_a_repr(play: Play, obedient: Make, kind: Any) -> None:
    played = play(kind, obedient(), rows(), lambda turn, _: "" if turn else call("look"))
    for [answer] in played.answers:
        assert json.loads(answer) == {"cells": [1, 0], "mine": True, "yours": None, "mark": "it's"}


@BOTH
@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (call("move", number="two"), "number"),
        (call("move", number=1, how="oddly"), "oddly"),
        (call("move"), "number"),
        (call("move", number=1, speed=2), "speed"),
    ],
)
def test_what_the_model_calls_wrongly_it_is_told(play: Play, obedient: Make, kind: Any, wrong: str, words: str) -> None:
    played = play(kind, obedient(), rows(), lambda turn, _: call("move", number=9) if turn else wrong)
    assert all(words in answers[0] and "Error" in answers[0] for answers in played.answers)
    assert played.log["rewards/environment_reward/mean"] == 9.0
    assert played.log["tools/failure_frequency"] == 0.0


@BOTH
def test_a_model_that_goes_on_calling_wrongly_is_stopped(play: Play, obedient: Make, kind: Any) -> None:
    factory = obedient(unfinished=-1.0)
    played = play(kind, factory, rows(), call("move", number="x"))
    assert played.log["rewards/environment_reward/mean"] == -1.0
    assert factory.metrics["invalid_actions"] == 3.0
    assert set(played.answers[0][3:]) <= {OVER_TEXT}


@BOTH
@pytest.mark.parametrize("how", ["raises", "exits", "nan", "inf"])
def test_what_breaks_in_a_step_costs_its_own_rows_only(play: Play, obedient: Make, kind: Any, how: str) -> None:
    def say(turn: int, text: str) -> str:
        return call("fail", how=how) if "Seed 0" in text and not turn else call("move", number=9)

    played = play(kind, obedient(), rows(), say)
    assert played.log["rewards/environment_reward/mean"] == 9.0, "no failed row is in the mean"
    advantages = played.batches[0]["advantages"]
    assert torch.isfinite(advantages).all()
    for answers, prompt in zip(played.answers, played.prompts, strict=True):
        assert set(answers) == {OVER_TEXT} if "Seed 0" in prompt else answers[0].startswith('{"said":"Moved 9')


@BOTH
def test_a_step_that_hangs_ends_at_its_deadline(play: Play, obedient: Make, kind: Any) -> None:
    def say(turn: int, text: str) -> str:
        return call("fail", how="hangs") if "Seed 0" in text else call("move", number=9)

    limits = LIMITS.model_copy(update={"step_timeout_s": 2.0})
    factory = obedient(limits=limits)
    played = play(kind, factory, rows(), say)
    assert factory.metrics["failed/step_timeout"] == 4.0
    assert played.log["rewards/environment_reward/mean"] == 9.0


@BOTH
def test_a_reset_that_raises_once_is_tried_again_and_the_run_goes_on(
    play: Play, obedient: Make, kind: Any, tmp_path: Path
) -> None:
    factory = obedient()
    mark = str(tmp_path / f"mark-{kind.__name__}")
    played = play(kind, factory, rows(way="raises once", mark=mark), call("move", number=9))
    assert played.log["rewards/environment_reward/mean"] == 9.0
    assert factory.metrics["failed_fraction"] == 0.0
    assert factory.metrics["tried_again"] >= 1.0


@BOTH
def test_a_reset_that_fails_for_good_leaves_the_row_unscored(play: Play, obedient: Make, kind: Any) -> None:
    data = rows().add_column("way", ["raises", "none"])
    factory = obedient()
    played = play(kind, factory, data, call("move", number=9))
    assert factory.metrics["failed/environment_error"] == 4.0
    assert played.log["rewards/environment_reward/mean"] == 9.0
    failed = [p for p in played.prompts if "Seed" not in p]
    assert len(failed) == 4
    assert all("deck" not in text for text in played.prompts), "the model is not told"


@BOTH
def test_failed_batches_are_passed_over_and_then_stop_training(play: Play, obedient: Make, kind: Any) -> None:
    factory = obedient(max_skipped_steps=1)
    with pytest.raises(RolloutFailureError, match=r"8 of 8 episodes failed.*the deck is missing.*2 steps in a row"):
        play(kind, factory, rows(way="raises"), call("move", number=9), args={"max_steps": 4})


@BOTH
def test_a_server_with_too_few_sessions_is_told_before_the_first_step(play: Play, narrow_url: str, kind: Any) -> None:
    words = r"there are 1 sessions.*MAX_CONCURRENT_ENVS"
    with make_environment_factory(narrow_url, limits=LIMITS) as factory, pytest.raises(ConfigurationError, match=words):
        play(kind, factory, rows(), call("move", number=9))


def test_sessions_that_others_hold_leave_rows_unscored_and_do_not_add_up_their_waits(
    play: Play, narrow_url: str
) -> None:
    limits = LIMITS.model_copy(update={"connect_timeout_s": 4.0})
    with make_environment_factory(narrow_url, limits=limits) as factory:
        factory._batch._capacity = factory.capacity = None  # as with a server that does not tell
        played = play(GRPOTrainer, factory, rows(), call("move", number=9))
        assert factory.metrics["failed/capacity"] == 7.0
        assert played.log["rewards/environment_reward/mean"] == 9.0


@BOTH
def test_no_session_outlives_training_and_an_evaluation_opens_new_ones(
    play: Play, obedient: Make, obedient_url: str, kind: Any
) -> None:
    before = active_sessions(obedient_url)
    factory = obedient()
    callbacks = [factory.callback] if kind is GRPOTrainer else []
    played = play(
        kind, factory, rows(), call("move", number=9), callbacks=callbacks, args={"per_device_eval_batch_size": 8}
    )
    wait_for_sessions(obedient_url, before)
    played.trainer.eval_dataset = rows()
    assert played.trainer.evaluate()["eval_rewards/environment_reward/mean"] == 9.0
    factory.close()
    wait_for_sessions(obedient_url, before)


def test_no_session_outlives_a_training_that_raises(play: Play, obedient: Make, obedient_url: str) -> None:
    before = active_sessions(obedient_url)

    def say(turn: int, _: str) -> str:
        if turn:
            raise OSError("the GPU is on fire")
        return call("move", number=1)

    with pytest.raises(OSError, match="on fire"):
        play(EnvironmentGRPOTrainer, obedient(), rows(), say)
    wait_for_sessions(obedient_url, before)


def test_an_action_schema_becomes_a_tool(play: Play, toolless_url: str) -> None:
    with make_environment_factory(toolless_url, limits=LIMITS) as factory:
        played = play(EnvironmentGRPOTrainer, factory, rows(), call("act", number=7, how="loudly"))
    assert played.log["rewards/environment_reward/mean"] == 7.0
    assert "loudly" in played.answers[0][0]


def test_several_environments_in_one_run(play: Play, obedient_url: str, toolless_url: str) -> None:
    data = rows().add_column("environment", ["moving", "guessing"])

    def say(_: int, text: str) -> str:
        return call("move", number=9) if "move(" in text else call("act", number=7)

    with make_environment_factories({"moving": obedient_url, "guessing": toolless_url}, limits=LIMITS) as factories:
        played = play(EnvironmentGRPOTrainer, factories, data, say)
        assert {name: factory.metrics["episodes"] for name, factory in factories.items()} == {
            "moving": 4.0,
            "guessing": 4.0,
        }
    assert played.log["rewards/moving/mean"] == 9.0
    assert played.log["rewards/guessing/mean"] == 7.0
    assert played.log["environment/moving/done_fraction"] == 1.0


def test_columns_are_chosen_and_a_missing_one_is_an_error(play: Play, obedient: Make) -> None:
    chosen = obedient(columns=["seed"])
    played = play(GRPOTrainer, chosen, rows(way="raises"), call("move", number=9))
    assert played.log["rewards/environment_reward/mean"] == 9.0, "'way' did not reach the environment"
    with pytest.raises(ConfigurationError, match="no columns"):
        play(GRPOTrainer, obedient(columns=["sed"]), rows(), call("move", number=9))


def test_rows_without_a_seed_are_warned_of_once(play: Play, obedient: Make, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="openenv_trl"):
        play(GRPOTrainer, obedient(), rows().remove_columns("seed"), call("move", number=9), args={"max_steps": 2})
    assert sum("no 'seed' column" in record.message for record in caplog.records) == 1


def test_string_prompts_are_an_error_that_says_what_to_write(play: Play, obedient: Make) -> None:
    data = rows().remove_columns("prompt").add_column("prompt", ["Play."] * 2)
    for kind in (GRPOTrainer, EnvironmentGRPOTrainer):
        with pytest.raises(ConfigurationError, match="'role': 'user'"):
            play(kind, obedient(), data, call("move", number=9))


def test_a_chat_template_without_tools_says_what_to_set(
    play: Play, obedient: Make, caller_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import AutoTokenizer

    plain = AutoTokenizer.from_pretrained(caller_path)
    plain.chat_template = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>{% endfor %}"
    monkeypatch.setattr(AutoTokenizer, "from_pretrained", lambda *_, **__: plain)
    with pytest.raises(ConfigurationError, match=r"tokenizer\.response_template"):
        play(EnvironmentGRPOTrainer, obedient(), rows(), call("move", number=9))


def test_what_the_environment_says_never_becomes_a_control_token(play: Play, obedient: Make) -> None:
    played = play(
        EnvironmentGRPOTrainer, obedient(), rows(), lambda turn, _: "" if turn else call("fail", how="controls")
    )
    for row in played.batches[0]["completion_ids"].tolist():
        assert played.tokenizer.decode(row).count("<|im_start|>assistant\n") == 1


@pytest.mark.parametrize("version", ["1.14.0", "1.17.0", "2.0"])
def test_another_trl_is_refused_with_what_to_install(
    monkeypatch: pytest.MonkeyPatch, obedient_url: str, version: str
) -> None:
    monkeypatch.setattr(trl_version, "version", lambda _: version)
    with pytest.raises(ConfigurationError, match=r"trl>=1\.15,<1\.17"):
        make_environment_factory(obedient_url)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"servers": []}, "base_urls"),
        ({"max_failed_fraction": 2.0}, "max_failed_fraction"),
        ({"name": "my env"}, "identifier"),
        ({"limits": RolloutLimits(max_turns=3)}, "max_tool_calling_iterations"),
        ({"limits": RolloutLimits(max_completion_tokens=3)}, "max_completion_length"),
    ],
)
def test_settings_that_cannot_work_are_refused_at_once(obedient_url: str, settings: Any, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        make_environment_factory(**{"servers": obedient_url, **settings})


def test_an_address_where_no_server_is_is_told_at_once() -> None:
    with pytest.raises(ConnectionFailedError, match=r"127\.0\.0\.1:9"):
        make_environment_factory("http://127.0.0.1:9")


class WildSession:
    """A session in this process, whose code raises what no code should."""

    def __init__(self, raised: BaseException) -> None:
        self.raised = raised

    async def list_tools(self) -> list[Tool]:
        return [Tool(name="move", input_schema={"type": "object", "properties": {"number": {"type": "integer"}}})]

    async def reset(self, **row: Any) -> StepResult[dict[str, Any]]:
        return StepResult({"message": f"Seed {row['seed']}."})

    async def step(self, action: Any, timeout_s: float | None = None) -> StepResult[dict[str, Any]]:
        await anyio.lowlevel.checkpoint()
        if action["arguments"]["number"] == 0:
            raise self.raised
        return StepResult({"message": "Moved."}, reward=1.0, done=True)

    async def close(self) -> None: ...


class WildSource:
    """Sessions without a server."""

    def __init__(self, raised: BaseException) -> None:
        self.raised, self.lent = raised, 0

    async def acquire(self, timeout_s: float) -> Any:
        self.lent += 1
        return type("Lease", (), {"session": WildSession(self.raised), "base_url": "here"})()

    async def release(self, lease: Any, *, healthy: bool) -> None:
        self.lent -= 1


@BOTH
@pytest.mark.parametrize(
    "raised", [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError(), GeneratorExit()], ids=repr
)
def test_nothing_that_an_environment_raises_ends_training(play: Play, kind: Any, raised: BaseException) -> None:
    source = WildSource(raised)
    with make_environment_factory(source, limits=LIMITS) as factory:
        played = play(kind, factory, rows(), lambda _, text: call("move", number=0 if "Seed 0" in text else 1))
        assert factory.metrics["failed/environment_error"] == 4.0
        assert played.log["rewards/environment_reward/mean"] == 1.0
        assert source.lent == 0


def test_sessions_of_ones_own_source_are_given_back_when_training_raised(play: Play) -> None:
    def breaks(turn: int, _: str) -> str:
        raise ValueError("no words")

    source = WildSource(RuntimeError())
    with make_environment_factory(source, limits=LIMITS) as factory, pytest.raises(ValueError, match="no words"):
        play(EnvironmentGRPOTrainer, factory, rows(), breaks)
    assert source.lent == 0


def test_a_users_own_interrupt_does_end_it(play: Play, obedient: Make) -> None:
    def say(turn: int, _: str) -> str:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        play(EnvironmentGRPOTrainer, obedient(), rows(), say)


@pytest.mark.parametrize("scoring", ["sync", "async"])
def test_a_score_of_ones_own_takes_the_place_of_the_environments(
    play: Play, obedient: Make, scoring: str, tmp_path: Path
) -> None:
    here, everyone = 0, anyio.Event()

    async def together(progress: Any) -> float | None:
        nonlocal here
        here += 1
        if here == 8:
            everyone.set()
        with anyio.move_on_after(30):
            await everyone.wait()
        return float(len(progress.actions)) if everyone.is_set() else None

    score = together if scoring == "async" else (lambda progress: float(progress.arguments["seed"] == 0))
    played = play(GRPOTrainer, obedient(score=score), rows(), call("move", number=9))
    assert played.log["rewards/environment_reward/mean"] == (1.0 if scoring == "async" else 0.5)
