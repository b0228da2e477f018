"""What the worker does when the inference server fails, hangs, dies or gets new weights while episodes go on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from openenv_trl.errors import ConfigurationError, PolicyError, RolloutFailureError
from openenv_trl.rollout import Completion, SamplingParameters, Trajectory

Take = Callable[..., list[Any]]
Until = Callable[..., None]


class Failures:
    """Counts the failures of the policy that the worker reports; takes its metrics out of the queue."""

    def __init__(self, worker: Any) -> None:
        self._queue, self._count = worker.metrics_queue, 0

    def __call__(self) -> int:
        while not self._queue.empty():
            self._count += int(self._queue.get_nowait().get("rollout/policy_failures_total", 0))
        return self._count


def test_a_generation_that_hangs_is_reported_as_a_stall_and_ends_when_it_answers(
    make_worker: Any, inference: Any, take: Take, until: Until
) -> None:
    worker = make_worker()
    inference.faults(hold=True)
    worker.start()
    until(lambda: inference.fault_state()["held"] >= 8, "all episodes generate")
    worker.check_health(60.0)
    with pytest.raises(RolloutFailureError, match=r"finished nothing for .* with 2 groups in flight"):
        until(lambda: worker.check_health(2.0), "the stall is seen")
    inference.faults()
    take(worker, 8)
    worker.check_health(60.0)
    assert worker.groups["lost_unsound"] == 0


def test_a_server_that_refuses_for_a_while_costs_no_episode(make_worker: Any, inference: Any, take: Take) -> None:
    played: list[Trajectory] = []
    worker = make_worker(on_group=played.extend)
    inference.faults(fail_next=20, status=503)
    worker.start()
    take(worker, 16)
    assert not any(trajectory.end_reason.is_failure for trajectory in played)


def test_a_server_that_dies_and_comes_back_costs_no_episode_and_no_session(
    make_worker: Any, take: Take, until: Until, own_inference: Any
) -> None:
    played: list[Trajectory] = []
    worker = make_worker(on_group=played.extend, policy=own_inference.policy())
    worker.start()
    take(worker, 8)
    own_inference.kill()
    while worker.rollout_buffer.qsize():
        worker.rollout_buffer.get()
    failures = Failures(worker)
    until(lambda: failures() >= 8, "the worker sees that the server is away")
    worker.check_health(60.0)
    own_inference.start()
    take(worker, 16)
    assert not any(trajectory.end_reason.is_failure for trajectory in played)
    assert max(trajectory.attempts for trajectory in played) == 1, "they waited in their sessions"


def test_a_server_that_does_not_come_back_ends_the_worker_with_the_reason(
    make_worker: Any, own_inference: Any, take: Take, until: Until
) -> None:
    worker = make_worker(policy=own_inference.policy(), max_outage_s=0.5)
    worker.start()
    take(worker, 4)
    own_inference.kill()
    while worker.rollout_buffer.qsize():
        worker.rollout_buffer.get()
    with pytest.raises(RolloutFailureError, match=r"answered nothing for .*max_outage_s") as raised:
        until(lambda: worker.check_health(60.0), "the worker gives up")
    assert isinstance(raised.value.__cause__, PolicyError)


def test_stopping_is_quick_whatever_is_under_way(make_worker: Any, inference: Any, until: Until) -> None:
    before = set(threading.enumerate())
    worker = make_worker()
    inference.faults(hold=True)
    worker.start()
    until(lambda: inference.fault_state()["held"] >= 8, "all episodes generate")
    began = time.monotonic()
    worker.stop()
    assert time.monotonic() - began < 10.0, "generations that hang are not waited for"
    until(lambda: set(threading.enumerate()) <= before, "all threads have ended")
    inference.faults()
    until(lambda: inference.fault_state()["held"] == 0, "the connections are closed")


def test_what_new_weights_make_too_old_is_dropped_and_counted(
    make_worker: Any, inference: Any, take: Take, until: Until
) -> None:
    worker = make_worker(max_staleness=1)
    worker.start()
    until(lambda: worker.rollout_buffer.qsize() >= 12, "rows of version 1")
    inference.faults(hold=True)
    # Of the groups under way some episodes may have ended already: what is left of them is held.
    until(lambda: inference.fault_state()["held"] >= 1, "an episode generates")
    worker.update_model_version(2)
    assert worker.rollout_buffer.qsize() >= 12, "one version is allowed"
    assert worker.groups["lost_stale"] == 0
    worker.update_model_version(3)
    assert worker.rollout_buffer.qsize() == 0
    until(lambda: worker.groups["lost_stale"] >= 1, "the groups in flight are given up")
    inference.faults()
    assert {row.model_version for row in take(worker, 8)} == {3}
    dropped = 0.0
    while not worker.metrics_queue.empty():
        dropped += worker.metrics_queue.get_nowait().get("rollout/rows_dropped_stale_total", 0.0)
    assert dropped >= 12


def test_each_token_span_is_stamped_with_the_version_that_was_asked(
    make_worker: Any, inference: Any, take: Take, until: Until
) -> None:
    played: list[Trajectory] = []
    worker = make_worker(on_group=played.extend, max_inflight_episodes=4)
    worker.start()
    version = 1
    while not any(len(trajectory.versions) > 1 for trajectory in played):
        take(worker, 4)
        version += 1
        worker.update_model_version(version)
        assert version < 400, "no episode was played across a change of weights"
    crossed = next(trajectory for trajectory in played if len(trajectory.versions) > 1)
    (first, old), (second, new) = crossed.versions[:2]
    assert (first, old) < (second, new)
    assert first == 0
    assert crossed.mask[second] == 1
    assert crossed.mask[second - 1] == 0, "a version begins where a message begins"


def test_a_policy_without_log_probs_is_refused_with_what_to_do(make_worker: Any, until: Until, tokenizer: Any) -> None:
    ids = tokenizer.encode('<tool_call>\n{"name": "stand", "arguments": {}}\n</tool_call><|im_end|>')

    class Silent:
        concurrent = True

        async def generate(self, prompts: Any, sampling: SamplingParameters) -> list[Completion]:
            return [Completion(ids, None, True) for _ in prompts]

    worker = make_worker(policy=Silent())
    worker.start()
    with pytest.raises(RolloutFailureError, match="log-probs") as raised:
        until(lambda: worker.check_health(60.0), "the worker ends")
    assert isinstance(raised.value.__cause__, ConfigurationError)


def test_a_trainer_that_stops_taking_rows_does_not_make_the_worker_ill(make_worker: Any, until: Until) -> None:
    worker = make_worker(max_buffered_rows=8)
    worker.start()
    until(lambda: worker.rollout_buffer.qsize() == 8 and not worker.groups["inflight"], "the buffer is full")
    worker.check_health(5.0)
    until(lambda: not worker.groups["inflight"], "nothing is played")
