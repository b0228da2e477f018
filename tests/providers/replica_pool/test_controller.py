"""What the controller decides in single cases that any order of events would reach too rarely."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from openenv_trl.errors import ConfigurationError, ServerStartError
from openenv_trl.providers.replica_pool import PoolSettings, StartLimit
from openenv_trl.providers.replica_pool.controller import ReplicaController
from openenv_trl.providers.replica_pool.decisions import (
    Admit,
    Decision,
    FailWaiters,
    Load,
    Probe,
    RemoveReplica,
    Retire,
    ServerLoad,
    StartReplica,
)
from openenv_trl.providers.replica_pool.metrics import Reservoir, Usage
from openenv_trl.providers.replica_pool.sizing import size_for


def controller(now: float = 0.0, sources: int = 1, remotes: tuple[str, ...] = (), **settings: Any) -> ReplicaController:
    defaults = {"min_replicas": 0, "sessions_per_replica": 4, "health_interval_s": 1e6}
    return ReplicaController(PoolSettings(**{**defaults, **settings}), sources, remotes, now)


def load(demand: int = 0, queued: int = 0, since: float | None = None, busy: Mapping[str, int] | None = None) -> Load:
    servers = {url: ServerLoad(count, 4) for url, count in (busy or {}).items()}
    return Load(demand, queued, queued, since, servers)


def kinds(decisions: list[Decision]) -> list[type]:
    return [type(decision) for decision in decisions]


def bring_up(control: ReplicaController, count: int, now: float = 0.0) -> list[str]:
    """So many replicas for callers that wait."""
    starts = control.plan(now, load(4 * count, 4 * count, now - 1000))
    assert kinds(starts) == [StartReplica] * count
    urls = [f"replica-{start.member}" for start in starts if isinstance(start, StartReplica)]
    for start, url in zip(starts, urls, strict=True):
        assert isinstance(start, StartReplica)
        control.started(start.member, url, now)
    assert kinds(control.plan(now, load(4 * count))) == [Admit] * count
    return urls


def test_the_first_callers_get_all_replicas_that_they_need_at_once():
    control = controller(max_replicas=8, scale_up_wait_s=5.0)
    assert kinds(control.plan(0.0, load(10, 10, 0.0))) == [StartReplica] * 3


def test_a_queue_is_given_time_before_replicas_are_added_for_it():
    control = controller(max_replicas=8, scale_up_wait_s=5.0)
    bring_up(control, 1)
    assert control.plan(1.0, load(6, 2, 1.0)) == []
    assert control.wake_at == 6.0
    assert kinds(control.plan(6.0, load(6, 2, 1.0))) == [StartReplica]


def test_what_was_needed_at_any_moment_of_the_idle_time_is_kept():
    control = controller(max_replicas=4, idle_s=10.0)
    first, *_ = bring_up(control, 4)
    busy = {first: 1}
    assert control.plan(0.0, load(1, busy=busy)) == []
    assert control.plan(5.0, load(9, busy=busy)) == []  # a moment of three
    assert control.plan(6.0, load(1, busy=busy)) == []
    assert control.wake_at == 10.0
    assert kinds(control.plan(10.0, load(1, busy=busy))) == [Retire]
    decisions = control.plan(20.0, load(1, busy=busy))
    assert kinds(decisions) == [RemoveReplica, Retire, Retire]
    assert Retire(first) not in decisions  # the busiest stays


def test_replicas_that_drain_are_taken_back_before_others_are_started():
    control = controller(max_replicas=4, idle_s=10.0)
    urls = bring_up(control, 2)
    control.plan(0.0, load())
    busy = dict.fromkeys(urls, 1)
    (retired,) = control.plan(10.0, load(2, busy=busy))
    assert isinstance(retired, Retire)
    back, start = control.plan(11.0, load(12, 10, 0.0, busy))
    assert isinstance(back, Admit)
    assert back.url == retired.url
    assert isinstance(start, StartReplica)


def test_an_old_replica_is_replaced_when_its_last_session_is_over_one_at_a_time():
    control = controller(min_replicas=2, max_replicas=3, max_age_s=100.0)
    starts = control.plan(0.0, load())
    for start in starts:
        assert isinstance(start, StartReplica)
        control.started(start.member, f"replica-{start.member}", 0.0)
    control.plan(0.0, load())
    busy = {"replica-1": 1, "replica-2": 1}
    assert kinds(control.plan(100.0, load(2, busy=busy))) == [Retire, StartReplica]
    assert control.plan(101.0, load(2, busy=busy)) == []
    assert control.plan(102.0, load(1, busy={"replica-2": 1})) == [RemoveReplica(1)]


def test_failed_starts_are_tried_again_after_growing_pauses_and_then_told():
    control = controller(max_replicas=1, start_failures=3, start_back_off_s=1.0, longest_start_back_off_s=3.0)
    waiting = load(1, 1, 0.0)
    for now, next_at in ((0.0, 1.0), (1.0, 3.0)):
        (start,) = control.plan(now, waiting)
        assert isinstance(start, StartReplica)
        control.start_failed(start.member, ServerStartError("it ended", log_tail="no module"), now)
        assert control.plan(now, waiting) == []
        assert control.wake_at == next_at
    (start,) = control.plan(3.0, waiting)
    assert isinstance(start, StartReplica)
    control.start_failed(start.member, ServerStartError("it ended", log_tail="no module"), 3.0)
    assert kinds(control.plan(3.0, waiting)) == [FailWaiters]
    assert kinds(control.plan(5.9, waiting)) == [FailWaiters]  # who asks before the next try
    assert kinds(control.plan(6.0, waiting)) == [StartReplica]


def test_what_keeps_a_server_from_running_at_all_is_told_at_once_until_one_has_run():
    control, waiting = controller(max_replicas=1, start_back_off_s=1.0), load(1, 1, 0.0)
    (start,) = control.plan(0.0, waiting)
    assert isinstance(start, StartReplica)
    control.start_failed(start.member, ServerStartError("there is no such image"), 0.0)
    assert kinds(control.plan(0.0, waiting)) == [FailWaiters]
    (start,) = control.plan(100.0, waiting)  # somebody has built it
    assert isinstance(start, StartReplica)
    control.started(start.member, "replica", 100.0)
    control.plan(100.0, load(1))
    control.exited("replica", "it was killed", 1000.0)
    control.plan(1000.0, waiting)
    control.removed(start.member)
    (start,) = control.plan(1000.0, waiting)
    assert isinstance(start, StartReplica)
    control.start_failed(start.member, ServerStartError("the engine is busy"), 1000.0)
    assert control.plan(1000.0, waiting) == []


def test_starts_that_fail_together_count_once():
    control = controller(max_replicas=4, start_failures=2)
    starts = control.plan(0.0, load(16, 16, 0.0))
    for start in starts:
        assert isinstance(start, StartReplica)
        control.start_failed(
            start.member, ServerStartError("it ended", log_tail="too many at once"), 1.0 + start.member
        )
    assert control.plan(9.0, load(16, 16, 0.0)) != []
    assert not any(isinstance(decision, FailWaiters) for decision in control.plan(9.0, load(16, 16, 0.0)))


def test_a_replica_that_dies_right_after_its_start_counts_as_a_failed_start():
    control = controller(max_replicas=1, start_failures=2, start_back_off_s=1.0)
    waiting, now = load(1, 1, 0.0), 0.0
    for _ in range(2):
        (start,) = [each for each in control.plan(now, waiting) if isinstance(each, StartReplica)]
        control.started(start.member, f"replica-{start.member}", now)
        control.plan(now, waiting)
        control.exited(f"replica-{start.member}", "It has died: out of memory.", now + 1)
        control.plan(now + 1, waiting)
        control.removed(start.member)
        decisions = control.plan(now + 1, waiting)
        control.plan(now + 1, waiting)
        now = control.wake_at
    (told,) = decisions
    assert isinstance(told, FailWaiters)
    assert "A replica died 1 s after it was ready. It has died: out of memory." in str(told.error)


def test_a_server_to_which_no_session_opens_is_asked_for_its_health_at_once():
    control = controller(max_replicas=1)
    (url,) = bring_up(control, 1)
    failing = Load(1, 1, 1, 0.0, {url: ServerLoad(0, 4, failing=True)})
    assert kinds(control.plan(5.0, failing)) == [Probe]
    control.probed(1, "", 6.0)
    assert control.plan(6.5, failing) == []
    assert control.wake_at == 7.0


def test_replicas_are_spread_over_providers_and_a_failing_one_is_passed_over():
    control = controller(max_replicas=4, sources=2)
    starts = control.plan(0.0, load(8, 8, 0.0))
    assert [start.source for start in starts if isinstance(start, StartReplica)] == [0, 1]
    for start in starts:
        assert isinstance(start, StartReplica)
        if start.source == 0:
            control.start_failed(start.member, ServerStartError("no"), 0.0)
        else:
            control.started(start.member, "replica", 0.0)
    (again,) = [each for each in control.plan(0.0, load(8, 8, -10.0)) if isinstance(each, StartReplica)]
    assert again.source == 1


@pytest.mark.parametrize(
    ("sessions", "capacities", "least", "most", "replicas"),
    [
        (0, [4], 0, 8, 0),
        (0, [4], 2, 8, 2),
        (4, [4], 0, 8, 1),
        (5, [4], 0, 8, 2),
        (5, [1, 4], 0, 8, 2),
        (6, [1, 4], 0, 8, 3),
        (5, [0, 4], 0, 8, 3),
        (99, [4], 0, 8, 8),
        (-3, [], 0, 8, 0),
    ],
)
def test_as_many_replicas_as_the_sessions_need(sessions, capacities, least, most, replicas):
    size = size_for(sessions, capacities, 4, least, most)
    assert size.replicas == replicas
    for other in range(-5, 60):
        same = size_for(other, capacities, 4, least, most).replicas == replicas
        assert same == (size.lowest <= other <= size.highest)


def test_starts_are_spaced_and_counted_for_all_pools_together():
    limit, one, other = StartLimit(max_replicas=2, max_starting=1, starts_per_second=4), object(), object()
    assert limit.may_start_at(10.0) == 10.0
    limit.started(one, 10.0)
    assert limit.may_start_at(10.0) == float("inf")
    limit.start_ended()
    assert limit.may_start_at(10.0) == 10.25
    limit.started(other, 10.25)
    limit.start_ended()
    assert limit.may_start_at(20.0) == float("inf")
    limit.gone(one)
    assert limit.may_start_at(20.0) == 20.0


@pytest.mark.parametrize("wrong", [{"max_replicas": -1}, {"max_starting": 0}, {"starts_per_second": 0}])
def test_limits_that_allow_nothing_are_refused(wrong):
    with pytest.raises(ConfigurationError, match="must be positive"):
        StartLimit(**wrong)


def test_percentiles_are_over_the_last_figures():
    reservoir = Reservoir(size=100)
    assert reservoir.percentiles([0.5, 1]) == [0.0, 0.0]
    for figure in range(1, 201):
        reservoir.add(figure)
    assert reservoir.percentiles([0.5, 0.95, 1]) == [150, 195, 200]


def test_use_is_averaged_over_time():
    usage = Usage(0.0)
    usage.note(4, 4, 0.0)
    usage.note(0, 4, 1.0)
    usage.note(0, 0, 3.0)  # an empty pool offers nothing
    usage.note(2, 4, 100.0)
    assert usage.average == pytest.approx(1 / 3)
