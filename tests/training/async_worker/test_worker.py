"""The worker over a real inference server and real environment servers, the test in the trainer's place."""

from __future__ import annotations

import threading
import urllib.request
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from blackjack_env.server.blackjack_environment import BlackjackEnvironment
from transformers import AutoModelForCausalLM

from openenv_trl.errors import ConfigurationError, ConnectionFailedError, RolloutFailureError
from openenv_trl.rollout import RolloutLimits, SamplingParameters, Trajectory, read_parquet
from openenv_trl.training import EnvironmentRollout

Take = Callable[..., list[Any]]
Until = Callable[..., None]


@pytest.fixture(scope="module")
def model(playing_policy_path: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(playing_policy_path).eval()


def test_a_row_holds_exactly_what_was_sampled_with_the_samplers_log_probs(
    make_worker: Any, take: Take, model: Any, tokenizer: Any
) -> None:
    worker = make_worker(sampling=SamplingParameters(temperature=0.8))
    worker.start()
    rows, longest = take(worker, 24), 0
    while longest < 2:  # the model plays at random, and it may stand every time
        rows += take(worker, 1)
        longest = max(np.count_nonzero(np.diff(row.completion_mask) == 1) for row in rows)
    for row in rows:
        assert len(row.input_ids) == len(row.completion_mask) == len(row.old_log_probs)
        with torch.inference_mode():
            logits = model(torch.tensor(row.input_ids).unsqueeze(0)).logits[0, :-1] / 0.8
        logp = logits.log_softmax(-1).gather(1, torch.tensor(row.input_ids[1:]).unsqueeze(1)).squeeze(1).numpy()
        trained = row.completion_mask[1:] == 1
        assert trained.any()
        np.testing.assert_allclose(row.old_log_probs[1:][trained], logp[trained], atol=2e-4)
        assert (row.old_log_probs[1:][~trained] == 0.0).all()
    assert any("hand" in tokenizer.decode(row.input_ids[row.completion_mask == 0]) for row in rows)


def test_a_groups_rows_carry_its_advantages_its_number_and_the_weights_version(make_worker: Any, take: Take) -> None:
    worker = make_worker()
    worker.start()
    groups: dict[int, list[Any]] = defaultdict(list)
    taken = take(worker, 40)
    while not any(row.advantage for row in taken):  # the model plays at random, and all groups may be equal
        taken += take(worker, 4)
    for row in taken:
        groups[row.group_id].append(row)
    whole = [rows for rows in groups.values() if len(rows) == 4]
    assert len(whole) > 5
    for rows in whole:
        rewards = np.array([row.metrics["reward"] for row in rows])
        spread = rewards.std()
        expected = (rewards - rewards.mean()) / (spread + 1e-8) if spread else np.zeros(4)
        np.testing.assert_allclose([row.advantage for row in rows], expected, atol=1e-6)
        assert {row.model_version for row in rows} == {1}
        assert {row.metrics["rewards/environment_reward"] for row in rows} == set(rewards)
        assert all(row.metrics["reward_std"] == pytest.approx(spread) for row in rows)


def test_columns_reach_reset_and_the_rewards_and_the_prompt_is_that_of_the_synchronous_trainer(
    make_worker: Any,
    take: Take,
    make_trainer: Any,
    blackjack_url: str,
    rows: Any,
    tokenizer: Any,
    tmp_path: Path,
) -> None:
    seen: list[tuple[int, int]] = []

    def remember(trajectory: list[Trajectory], seed: list[int], **_: Any) -> list[float]:
        seen.extend((t.task.reset["seed"], s) for t, s in zip(trajectory, seed, strict=True))
        return [0.0] * len(seed)

    worker = make_worker(dataset=rows(4), reward_funcs=remember)
    worker.start()
    asynchronous: dict[int, str] = {}
    while len(asynchronous) < 4:
        asynchronous |= {row.group_id % 4: tokenizer.decode(prompt_ids(row)) for row in take(worker, 4)}
    assert all(in_reset == in_reward for in_reset, in_reward in seen)
    assert {seed for seed, _ in seen} == {0, 1, 2, 3}

    folder = tmp_path / "synchronous"
    limits = RolloutLimits(max_turns=1, max_new_tokens_per_turn=4)
    with EnvironmentRollout(blackjack_url, trajectory_dir=folder, limits=limits) as rollout:
        trainer = make_trainer(rollout, rollout.prepare_dataset(rows(4)), max_steps=1, per_device_train_batch_size=16)
        trainer.processing_class.chat_template = tokenizer.chat_template
        trainer.train()
    synchronous = {t.task.reset["seed"]: trainer.processing_class.decode(t.prompt_ids) for t in read_parquet(folder)}
    assert asynchronous == synchronous
    for seed, text in asynchronous.items():
        assert BlackjackEnvironment().reset(seed=seed).message in text


def prompt_ids(row: Any) -> Any:
    """What is before the first sampled id."""
    return row.input_ids[: int(np.argmax(row.completion_mask))]


def test_resets_of_groups_and_their_episodes_go_on_side_by_side(
    make_worker: Any, take: Take, trial_url: str, rows: Any
) -> None:
    worker = make_worker(trial_url, rows(8, way="meet 8"))
    worker.start()
    assert len(take(worker, 8)) == 8, "eight resets met: had they come one after another none would have returned"


def test_a_failed_episode_is_played_again_in_a_fresh_session(
    make_worker: Any, take: Take, trial_url: str, rows: Any
) -> None:
    played: list[Trajectory] = []
    worker = make_worker(trial_url, rows(4, way="first try raises"), on_group=played.extend)
    worker.start()
    assert len(take(worker, 16)) == 16
    assert max(trajectory.attempts for trajectory in played) == 2
    assert not any(trajectory.end_reason.is_failure for trajectory in played)


def test_an_episode_that_fails_for_good_costs_its_own_row_only(
    make_worker: Any, take: Take, trial_url: str, rows: Any
) -> None:
    played: list[Trajectory] = []
    worker = make_worker(
        trial_url, rows(8, way="odd seeds raise"), on_group=played.extend, shared_randomness="none", seed=3
    )
    worker.start()
    taken = take(worker, 16)
    failed = [trajectory for trajectory in played if trajectory.end_reason.is_failure]
    assert failed
    assert all(trajectory.task.reset["seed"] % 2 for trajectory in failed)
    sizes: dict[int, int] = defaultdict(int)
    for row in taken:
        sizes[row.group_id] += 1
        assert not np.isnan(row.metrics["reward"])
    assert any(size < 4 for size in list(sizes.values())[:-1]), "some rows were left out"
    worker.check_health(300.0)


def test_groups_that_bring_nothing_end_the_worker_in_the_end_and_say_why(
    make_worker: Any, until: Until, trial_url: str, rows: Any
) -> None:
    worker = make_worker(trial_url, rows(4, way="raises"), max_lost_groups=3)
    worker.start()
    until(lambda: worker.groups["lost_unsound"] >= 3, "three groups are lost")
    with pytest.raises(RolloutFailureError, match=r"3 groups in a row.*the deck is missing"):
        until(lambda: worker.check_health(300.0), "the worker ends")
    assert worker.rollout_buffer.qsize() == 0


def test_episodes_without_a_reward_are_left_out_and_are_not_zero(make_worker: Any, take: Take) -> None:
    scores = iter(range(10**6))

    def some(trajectory: list[Trajectory], **_: Any) -> list[float | None]:
        return [None if (n := next(scores)) % 4 == 0 else float(n % 4) for _ in trajectory]

    worker = make_worker(reward_funcs=some, max_inflight_episodes=4)
    worker.start()
    for row in take(worker, 9):
        assert row.metrics["reward"] in (1.0, 2.0, 3.0)
        assert row.advantage == pytest.approx((row.metrics["reward"] - 2.0) / np.std([1, 2, 3]), abs=1e-6)


def test_a_reward_function_may_be_a_coroutine_or_block_and_several_are_weighed(make_worker: Any, take: Take) -> None:
    lock = threading.Lock()  # cannot be pickled: the functions are called where they were made

    async def three(trajectory: list[Trajectory], **_: Any) -> list[float]:
        return [3.0] * len(trajectory)

    def blocking(trajectory: list[Trajectory], **_: Any) -> list[float]:
        with lock:
            return [float(place) for place in range(len(trajectory))]

    worker = make_worker(reward_funcs=[three, blocking], reward_weights=[1.0, 2.0])
    worker.start()
    assert sorted(row.metrics["reward"] for row in take(worker, 4)) == [3.0, 5.0, 7.0, 9.0]


def test_a_mistake_of_the_users_ends_the_worker_with_its_own_words(make_worker: Any, until: Until) -> None:
    def broken(**_: Any) -> list[float]:
        raise KeyError("anser")

    worker = make_worker(reward_funcs=broken)
    worker.start()
    with pytest.raises(RolloutFailureError, match=r"'broken' raised KeyError: 'anser'") as raised:
        until(lambda: worker.check_health(300.0), "the worker ends")
    assert isinstance(raised.value.__cause__, ConfigurationError)


def test_equal_groups_are_left_out_where_they_are_not_wanted(make_worker: Any, take: Take) -> None:
    worker = make_worker(keep_equal_groups=False, max_lost_groups=1000)
    worker.start()
    taken = take(worker, 12)
    while not worker.groups["lost_equal"]:  # the model plays at random: about three groups of five are equal
        taken += take(worker, 4)
    assert all(row.advantage for row in taken)


def test_a_full_buffer_holds_playing_back_and_a_taken_row_lets_it_go_on(
    make_worker: Any, take: Take, until: Until
) -> None:
    worker = make_worker(max_buffered_rows=10)
    worker.start()
    until(lambda: worker.rollout_buffer.qsize() == 8 and not worker.groups["inflight"], "two groups fill the buffer")
    worker.check_health(0.001 + 300.0)
    begun = worker.next_group
    assert begun == 2
    take(worker, 3)
    until(lambda: worker.next_group == 3, "a group begins")
    until(lambda: worker.rollout_buffer.qsize() == 9, "it fills the buffer again")
    assert len(take(worker, 12)) == 12


def test_rows_are_not_made_before_their_time_where_the_trainers_pace_is_known(make_worker: Any, until: Until) -> None:
    worker = make_worker(rows_per_version=4, max_staleness=1, max_inflight_episodes=64)
    worker.start()
    until(lambda: worker.rollout_buffer.qsize() == 8, "rows for two versions")
    assert worker.next_group == 2
    for _ in range(4):
        worker.rollout_buffer.get()
    assert worker.next_group == 2, "the next group's turn is two versions away until there are new weights"
    worker.update_model_version(2)
    until(lambda: worker.next_group == 3, "one more is begun")
    until(lambda: worker.rollout_buffer.qsize() == 8, "and finished")
    assert worker.next_group == 3


def test_the_order_of_prompts_is_the_seeds_and_a_run_can_go_on_where_it_was(
    make_worker: Any, take: Take, tokenizer: Any
) -> None:
    def prompts(**changes: Any) -> dict[int, str]:
        worker = make_worker(shuffle=True, max_inflight_episodes=4, **changes)
        worker.start()
        found = {row.group_id: tokenizer.decode(prompt_ids(row)) for row in take(worker, 12)}
        worker.stop()
        return found

    first, again, later = prompts(), prompts(), prompts(first_group=2)
    assert first == again
    assert later[2] == first[2]
    assert list(first.values()) != list(prompts(seed=5).values())


def test_nothing_is_left_when_the_worker_stops_and_it_can_start_again(
    make_worker: Any, take: Take, until: Until, blackjack_url: str
) -> None:
    def sessions() -> float:
        with urllib.request.urlopen(f"{blackjack_url}/metrics", timeout=10) as page:
            lines = page.read().decode().splitlines()
        return float(next(line for line in lines if line.startswith("openenv_sessions_active")).split()[-1])

    before, open_before = set(threading.enumerate()), sessions()
    worker = make_worker()
    worker.start()
    first = take(worker, 8)
    assert sessions() > open_before
    worker.stop()
    worker.stop()
    until(lambda: set(threading.enumerate()) <= before, "all threads have ended")
    until(lambda: sessions() <= open_before, "all sessions are closed")
    assert worker.groups["inflight"] == 0
    with pytest.raises(RolloutFailureError, match="stopped"):
        worker.check_health(300.0)
    worker.start()
    last = max(row.group_id for row in first)
    assert max(row.group_id for row in take(worker, 16)) > last


def test_servers_that_do_not_answer_are_told_at_the_start_and_leave_no_thread(make_worker: Any, until: Until) -> None:
    before = set(threading.enumerate())
    worker = make_worker("http://127.0.0.1:9", limits=RolloutLimits(connect_timeout_s=0.5))
    with pytest.raises((ConnectionFailedError, TimeoutError, OSError), match=r"127\.0\.0\.1:9"):
        worker.start()
    until(lambda: set(threading.enumerate()) <= before, "all threads have ended")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"dataset": []}, "empty"),
        ({"reward_funcs": []}, "reward function"),
        ({"reward_weights": [1.0, 2.0]}, "weights"),
    ],
)
def test_settings_that_cannot_work_are_refused_at_once(make_worker: Any, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        make_worker(**changes)
