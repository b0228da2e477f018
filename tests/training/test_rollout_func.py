"""EnvironmentRollout under a real GRPOTrainer, over real server processes."""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from blackjack_env.server.blackjack_environment import BlackjackEnvironment
from datasets import Dataset, IterableDataset

from openenv_trl.errors import ConfigurationError, ConnectionFailedError, RolloutFailureError
from openenv_trl.rollout import EndReason, TextActions, read_parquet
from openenv_trl.rollout.observer import Observers, Phase
from openenv_trl.rollout.watch import RolloutWatch
from openenv_trl.training import EnvironmentRollout
from openenv_trl.training.batch_names import BatchNames
from openenv_trl.training.generation import GenerationBridge

from .scripted import LIMITS, PROMPT, MakeTrainer, Play, Replies, by_the_cards, call, rows, wait_for_sessions


@pytest.fixture
def play(make_trainer: MakeTrainer, tmp_path: Path) -> Callable[..., Play]:
    return lambda url, dataset, choose, **options: Play(make_trainer, url, tmp_path, dataset, choose, **options)


def test_the_rows_seed_reaches_reset_and_a_group_shares_its_first_cards(
    play: Callable[..., Play], blackjack_url: str
) -> None:
    played = play(blackjack_url, rows(), lambda *_: call("stand"), shared_randomness="task")
    game = BlackjackEnvironment()
    for trajectory in played.trajectories:
        expected = game.reset(task_seed=trajectory.task.reset["task_seed"], seed=0).message
        assert trajectory.first_observation == expected
        assert trajectory.task.reset["task_seed"] in range(16), "the dataset's own column"
    groups = {t.task.group: [] for t in played.trajectories}
    for trajectory in played.trajectories:
        groups[trajectory.task.group].append(trajectory.first_observation)
    assert [len(set(texts)) for texts in groups.values()] == [1, 1]
    assert [len(texts) for texts in groups.values()] == [4, 4]


def test_a_shared_episode_is_the_same_to_its_end(play: Callable[..., Play], blackjack_url: str) -> None:
    played = play(blackjack_url, rows(), lambda *_: call("stand"), shared_randomness="episode")
    by_seed: dict[int, set[tuple[str, float | None]]] = {}
    for t in played.trajectories:
        by_seed.setdefault(t.task.reset["seed"], set()).add((t.turns[-1].observations[-1], t.reward))
    assert [len(ends) for ends in by_seed.values()] == [1, 1]


def test_the_ids_trained_on_are_the_ids_sampled_and_nothing_else_is(
    play: Callable[..., Play], blackjack_url: str
) -> None:
    played = play(blackjack_url, rows(), by_the_cards, shared_randomness="none")
    batch = played.batches[0]
    trained = batch["tool_mask"].bool() & batch["completion_mask"].bool()
    ids = [
        [int(i) for i, on in zip(row, mask, strict=True) if on]
        for row, mask in zip(batch["completion_ids"], trained, strict=True)
    ]
    trained_ids = sorted(i for row in ids for i in row)
    assert trained_ids == sorted(i for reply in played.replies.sampled for i in reply), "each sampled id, and no other"
    tokenizer: Any = played.trainer.processing_class
    assert all("hand" not in tokenizer.decode(row) for row in ids), "no word of the environment's is trained on"
    assert any("hand" in tokenizer.decode(row) for row in batch["completion_ids"].tolist())


def test_the_loss_does_not_see_what_the_environment_wrote(play: Callable[..., Play], blackjack_url: str) -> None:
    played = play(blackjack_url, rows(), by_the_cards, shared_randomness="none")
    trainer, batch = played.trainer, dict(played.batches[0])
    batch["advantages"] = torch.ones_like(batch["advantages"])
    logps: list[torch.Tensor] = []
    original = trainer._get_per_token_logps_and_entropies

    def remember(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        result[0].retain_grad()
        logps.append(result[0])
        return result

    trainer._get_per_token_logps_and_entropies = remember  # type: ignore[method-assign]
    trainer.model.train()
    trainer.compute_loss(trainer.model, batch).backward()
    gradient = logps[0].grad
    assert gradient is not None
    seen = gradient.abs() > 0
    assert torch.equal(seen, batch["tool_mask"].bool() & batch["completion_mask"].bool())


@pytest.mark.parametrize(
    ("way", "reason", "words"),
    [
        ("reset raises", EndReason.ENVIRONMENT_ERROR, "the deck is missing"),
        ("step raises", EndReason.ENVIRONMENT_ERROR, "the table broke"),
        ("step hangs", EndReason.STEP_TIMEOUT, "2"),
    ],
)
def test_an_environment_that_fails_costs_its_own_episodes_only(
    play: Callable[..., Play], unruly_url: str, way: str, reason: EndReason, words: str
) -> None:
    dataset = Dataset.from_list([{"prompt": PROMPT, "seed": i, "way": "none" if i % 2 else way} for i in range(2)])
    limits = LIMITS.model_copy(update={"step_timeout_s": 2.0 if way == "step hangs" else 60.0})
    played = play(unruly_url, dataset, lambda *_: call("stand"), limits=limits)
    good, bad = (
        [t for t in played.trajectories if (t.task.reset["way"] == "none") is wanted] for wanted in (True, False)
    )
    assert [t.reward for t in good] == [1.0] * 4
    assert [(t.reward, t.end_reason, t.attempts) for t in bad] == [(None, reason, 2)] * 4
    assert all(words in (t.error or "") for t in bad)
    assert played.log["reward"] == 1.0, "failed episodes are not in the mean, and not scored 0.0"
    batch = played.batches[0]
    failed = torch.tensor([t.end_reason.is_failure for t in played.trajectories])
    assert (batch["tool_mask"] * batch["completion_mask"]).sum(1)[failed].eq(0).all()
    assert batch["advantages"].eq(0).all()


def test_a_reward_that_is_no_number_is_never_scored(play: Callable[..., Play], unruly_url: str) -> None:
    dataset = Dataset.from_list([{"prompt": PROMPT, "seed": i, "way": "none" if i % 2 else "nan"} for i in range(2)])
    played = play(unruly_url, dataset, lambda *_: call("stand"))
    rewards = {t.task.reset["way"]: t.reward for t in played.trajectories}
    assert rewards == {"none": 1.0, "nan": None}
    assert played.log["reward"] == 1.0
    assert played.batches[0]["advantages"].isfinite().all()


def test_a_batch_that_failed_stops_training_and_says_why(play: Callable[..., Play], unruly_url: str) -> None:
    with pytest.raises(RolloutFailureError, match=rf"8 of 8 episodes failed.*the table broke.*{unruly_url} is healthy"):
        play(unruly_url, rows(way="step raises"), lambda *_: call("stand"), max_skipped_steps=0)


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        ('<tool_call>\n{"name": "stand", "arguments": {</tool_call><|im_end|>', "JSON"),
        (call("fold"), "fold"),
        (call("stand", '{"loudly": true}'), "loudly"),
    ],
)
def test_a_call_that_cannot_be_used_is_answered_and_may_be_corrected(
    play: Callable[..., Play], blackjack_url: str, reply: str, words: str
) -> None:
    played = play(blackjack_url, rows(), lambda _, text: call("stand") if "tool\n" in text else reply)
    for trajectory in played.trajectories:
        assert trajectory.invalid_actions == 1
        assert words in trajectory.turns[0].problems[0]
        assert trajectory.end_reason is EndReason.DONE
        assert trajectory.reward in (-1.0, 0.0, 1.0)


def test_a_model_that_does_not_act_gets_the_unfinished_reward(play: Callable[..., Play], blackjack_url: str) -> None:
    played = play(blackjack_url, rows(), lambda *_: "no<|im_end|>")
    assert {t.end_reason for t in played.trajectories} == {EndReason.NO_ACTION}
    assert played.log["reward"] == -1.0


def test_metrics_are_logged_beside_the_trainers_own(play: Callable[..., Play], blackjack_url: str) -> None:
    played = play(blackjack_url, rows(), lambda *_: call("stand"))
    logged = {name for name in played.log if name.startswith("rollout/")}
    assert logged
    assert {f"rollout/{name}" for name in played.metrics} == logged
    assert "rewards/environment_reward/mean" in played.log


def test_a_real_model_trains_over_several_steps(make_trainer: MakeTrainer, blackjack_url: str, tmp_path: Path) -> None:
    with EnvironmentRollout(blackjack_url, limits=LIMITS, shared_randomness="task") as rollout:
        trainer = make_trainer(rollout, rollout.prepare_dataset(rows()), max_steps=3)
        before = {name: value.clone() for name, value in trainer.model.state_dict().items()}
        trainer.train()
    assert [entry["step"] for entry in trainer.state.log_history if "reward" in entry] == [1, 2, 3]
    assert all(torch.isfinite(value).all() for value in trainer.model.state_dict().values())
    assert set(before) == set(trainer.model.state_dict())


def test_evaluation_plays_too(make_trainer: MakeTrainer, blackjack_url: str) -> None:
    with EnvironmentRollout(blackjack_url, limits=LIMITS) as rollout:
        trainer = make_trainer(
            rollout, rollout.prepare_dataset(rows()), per_device_eval_batch_size=8, num_generations_eval=2
        )
        trainer.eval_dataset = rollout.prepare_dataset(rows(4))
        Replies(trainer, lambda *_: call("stand"))
        metrics = trainer.evaluate()
    assert -1.0 <= metrics["eval_reward"] <= 1.0


def test_a_run_taken_up_again_goes_on_with_new_luck(
    make_trainer: MakeTrainer, blackjack_url: str, tmp_path: Path
) -> None:
    def seeds(name: str, **changes: Any) -> dict[str, list[int]]:
        """The seeds that each batch's episodes were reset with."""
        folder = tmp_path / name
        with EnvironmentRollout(
            blackjack_url, limits=LIMITS, shared_randomness="none", trajectory_dir=folder
        ) as rollout:
            data = [{"prompt": PROMPT} for _ in range(16)]
            trainer = make_trainer(rollout, rollout.prepare_dataset(data), save_strategy="steps", save_steps=1)
            Replies(trainer, lambda *_: call("stand"))
            trainer.train(**changes)
        return {path.name: [t.task.reset["seed"] for t in read_parquet(path)] for path in folder.glob("*.parquet")}

    whole = seeds("whole")
    resumed = seeds("resumed", resume_from_checkpoint=str(tmp_path / "checkpoint-1"))
    assert sorted(whole) == ["train_000000_0_0.parquet", "train_000001_0_0.parquet"]
    assert resumed == {"train_000001_0_0.parquet": whole["train_000001_0_0.parquet"]}
    assert set(whole["train_000000_0_0.parquet"]).isdisjoint(whole["train_000001_0_0.parquet"])


def test_each_evaluation_plays_the_same_tasks() -> None:
    names = BatchNames()
    training = [names.next(True, 0), names.next(True, 0)]
    first = [names.next(False, 1), names.next(False, 1)]
    training.append(names.next(True, 1))
    assert first == [names.next(False, 2), names.next(False, 2)]
    assert len(set(training)) == 3


def test_a_rollout_serves_the_trainer_that_calls_it(make_trainer: MakeTrainer, blackjack_url: str) -> None:
    seen: list[tuple[Any, int]] = []
    with EnvironmentRollout(blackjack_url) as rollout:
        for length in (60, 600):
            trainer = make_trainer(rollout, rollout.prepare_dataset(rows()), max_steps=1, max_completion_length=length)
            Replies(trainer, lambda *_: call("stand"))
            trainer.train()
            engine = rollout.engines[""]
            assert engine._tokenizer is trainer.processing_class
            seen.append((trainer.processing_class, engine.limits.max_completion_tokens))
    assert [tokens for _, tokens in seen] == [60, 600], "the trainer's own length, where no limit was set"


@pytest.mark.timeout(120)
def test_an_interrupt_at_any_moment_leaves_no_episode_waiting(
    make_trainer: MakeTrainer, blackjack_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt  # before the thread that generates has even begun to serve

    monkeypatch.setattr(GenerationBridge, "serve", interrupted)
    with pytest.raises(KeyboardInterrupt), EnvironmentRollout(blackjack_url, limits=LIMITS) as rollout:
        make_trainer(rollout, rollout.prepare_dataset(rows()), max_steps=1).train()


@pytest.mark.timeout(120)
@pytest.mark.parametrize("moment", ["before it begins", "while the model generates", "while the environment steps"])
def test_closing_from_another_thread_ends_the_batch_with_what_happened_and_leaves_no_session(
    make_trainer: MakeTrainer, blackjack_url: str, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    class Watch(Observers):
        def phase_changed(self, index: int, phase: Phase, now: float) -> None:
            if phase is Phase.STEPPING and moment == "while the environment steps":
                close(wait=False)  # it waits for the loop, which this is

    rollout = EnvironmentRollout(blackjack_url, limits=LIMITS, observer=Watch([]), shared_randomness="none")
    closing = threading.Thread(target=rollout.close)

    def close(*_: Any, wait: bool = True) -> str:
        if closing.ident is None:
            closing.start()
        if wait:
            closing.join()
        return call("hit")

    if moment == "before it begins":
        tasks = rollout._tasks
        monkeypatch.setattr(rollout, "_tasks", lambda *given: (tasks(*given), close())[0])
    trainer = make_trainer(rollout, rollout.prepare_dataset(rows()), max_steps=1)

    def hit(i: int, _: str) -> str:
        if i >= 8 and closing.ident is not None:
            closing.join()  # a second turn comes after the close, so that no batch is over before it
        return call("hit")

    Replies(trainer, close if moment == "while the model generates" else hit)
    with pytest.raises(ConfigurationError, match="The rollout was closed while a batch was played"):
        trainer.train()
    closing.join()
    wait_for_sessions(blackjack_url, 0)
    with rollout:
        again = make_trainer(rollout, rollout.prepare_dataset(rows()), max_steps=1)
        monkeypatch.undo()
        Replies(again, lambda *_: call("stand"))
        again.train()
        assert rollout.metrics["failed_fraction"] == 0.0


def test_one_server_that_answers_is_enough(make_trainer: MakeTrainer, blackjack_url: str) -> None:
    with EnvironmentRollout(["http://127.0.0.1:9", blackjack_url], limits=LIMITS) as rollout:
        trainer = make_trainer(rollout, rollout.prepare_dataset(rows()), max_steps=1)
        Replies(trainer, lambda *_: call("stand"))
        trainer.train()
        assert rollout.metrics["failed_fraction"] == 0.0


def test_a_stream_whose_columns_were_not_attached_is_an_error_too(
    make_trainer: MakeTrainer, blackjack_url: str
) -> None:
    stream = IterableDataset.from_generator(lambda: iter([{"prompt": PROMPT, "seed": i} for i in range(64)]))
    with EnvironmentRollout(blackjack_url, limits=LIMITS) as rollout:
        trainer = make_trainer(rollout, stream)
        with pytest.raises(ConfigurationError, match="attach_columns"):
            trainer.train()


def test_an_address_where_no_server_is_stops_before_the_first_step(make_trainer: MakeTrainer) -> None:
    with EnvironmentRollout("http://127.0.0.1:9", limits=LIMITS) as rollout:
        trainer = make_trainer(rollout, rollout.prepare_dataset(rows()))
        with pytest.raises(ConnectionFailedError, match=r"127\.0\.0\.1:9"):
            trainer.train()


def test_a_chat_template_without_tools_says_what_to_set(make_trainer: MakeTrainer, blackjack_url: str) -> None:
    with EnvironmentRollout(blackjack_url, limits=LIMITS) as rollout:
        trainer = make_trainer(rollout, rollout.prepare_dataset(rows()))
        trainer.processing_class.chat_template = (
            "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>{% endfor %}"
        )
        with pytest.raises(ConfigurationError, match="template"):
            trainer.train()


def test_columns_that_were_not_attached_are_an_error_that_names_the_call(
    make_trainer: MakeTrainer, blackjack_url: str
) -> None:
    with EnvironmentRollout(blackjack_url, limits=LIMITS) as rollout:
        trainer = make_trainer(rollout, rows())
        with pytest.raises(ConfigurationError, match="attach_columns"):
            trainer.train()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"environments": []}, "base_urls"),
        ({"environments": None}, "base_urls"),
        ({"environments": {}}, "no environments"),
        ({"environments": {"a": []}}, "environment 'a' has no address"),
        ({"environments": {"a/b": "http://x"}}, "a/b"),
        ({"environments": "http://x", "max_failed_fraction": 1.5}, "max_failed_fraction"),
        ({"environments": "http://x", "max_skipped_steps": -1}, "max_skipped_steps"),
        ({"environments": "http://x", "shared_randomness": "all"}, "all"),
    ],
)
def test_settings_that_cannot_work_are_refused_at_once(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        EnvironmentRollout(**options)


def test_a_parser_that_exits_ends_the_training_and_leaves_no_session(
    make_trainer: Callable[..., Any], blackjack_url: str
) -> None:
    def parse(text: str) -> Any:
        raise SystemExit(2)  # as argparse does, of a word that it does not know

    rollout = EnvironmentRollout(blackjack_url, actions=TextActions(parse))
    trainer = make_trainer(rollout, rollout.prepare_dataset(rows()), max_steps=1)
    Replies(trainer, lambda *_: "fold<|im_end|>")
    with pytest.raises(ConfigurationError, match="SystemExit"):
        trainer.train()
    rollout.close()
    wait_for_sessions(blackjack_url, 0)


def _pickled(rollout: EnvironmentRollout) -> EnvironmentRollout:
    return pickle.loads(pickle.dumps(rollout))


@pytest.mark.parametrize("copied", [_pickled, copy.deepcopy, copy.copy])
def test_a_rollout_in_use_can_be_copied_and_the_copy_plays_in_sessions_of_its_own(
    make_trainer: MakeTrainer, blackjack_url: str, copied: Callable[[EnvironmentRollout], EnvironmentRollout]
) -> None:
    def train(rollout: EnvironmentRollout) -> None:
        trainer = make_trainer(rollout, rollout.prepare_dataset(rows()), max_steps=1)
        Replies(trainer, lambda *_: call("stand"))
        trainer.train()
        assert trainer.state.global_step == 1

    with EnvironmentRollout(blackjack_url, limits=LIMITS, seed=3, observer=RolloutWatch()) as rollout:
        train(rollout)
        with copied(rollout) as other:
            assert (other.base_urls, other.limits, other.metrics) == (
                rollout.base_urls,
                rollout.limits,
                rollout.metrics,
            )
            assert other.engines == {}, "nothing of it is open yet"
            train(other)
            assert other.engines[""] is not rollout.engines[""]
        train(rollout)  # that the copy was closed is nothing to it
