"""A worker is well while it brings something about, and says so honestly when it does not. No clock, no thread."""

from __future__ import annotations

from openenv_trl.training.async_worker.health import Health
from openenv_trl.training.async_worker.outage import GiveBack, GiveUp, OutageWatch, TryAgain


def started(inflight: int = 1) -> Health:
    health = Health()
    health.start(0.0)
    health.groups_inflight(inflight, 0.0)
    return health


def test_a_worker_whose_generation_hangs_is_ill_though_its_loop_runs() -> None:
    health = started()
    health.progressed(10.0, "a completion")
    for now in range(400):
        health.tick(float(now))
    assert health.problem(309.0, 300.0) is None
    problem = health.problem(311.0, 300.0)
    assert problem is not None
    assert "finished nothing for 301 s, with 1 groups in flight; the last was a completion" in problem


def test_a_worker_that_waits_for_the_trainer_is_well_for_ever() -> None:
    health = started(inflight=0)
    health.tick(9000.0)
    assert health.problem(9001.0, 300.0) is None
    health.groups_inflight(1, 9001.0)
    assert health.problem(9002.0, 300.0) is None, "work that has just begun has not stalled"
    health.tick(9302.0)
    assert health.problem(9302.0, 300.0) is not None


def test_a_blocked_loop_is_named() -> None:
    health = started(inflight=0)
    health.tick(5.0)
    problem = health.problem(306.0, 300.0)
    assert problem is not None
    assert "event loop has not run for 301 s" in problem


def test_a_stall_names_the_last_failure_of_the_server_until_it_answers_again() -> None:
    health = started()
    health.outage = "503 from http://gpu"
    health.tick(400.0)
    assert "503 from http://gpu" in (health.problem(400.0, 300.0) or "")
    health.progressed(400.0, "a completion")
    health.tick(800.0)
    assert "503" not in (health.problem(800.0, 300.0) or "503")


def test_a_worker_that_is_dead_or_was_never_started_says_so() -> None:
    assert "not started" in (Health().problem(0.0, 300.0) or "")
    health = started()
    health.died(ValueError("the deck is missing"))
    assert "the deck is missing" in (health.problem(1.0, 300.0) or "")
    health.start(2.0)
    assert health.problem(2.0, 300.0) is None, "a fresh start forgets"


def watch() -> OutageWatch:
    return OutageWatch(max_outage_s=100.0, first_delay_s=0.25)


def test_a_generation_that_fails_among_others_that_succeed_fails_alone() -> None:
    outage = watch()
    outage.succeeded(5.0)
    assert outage.failed(began=4.0, now=6.0) == GiveBack()


def test_when_nothing_is_answered_generations_wait_longer_and_longer_and_then_give_up() -> None:
    outage = watch()
    outage.succeeded(5.0)
    assert outage.failed(began=6.0, now=6.0) == TryAgain(0.25)
    assert outage.failed(began=6.0, now=8.0) == TryAgain(1.0)
    assert outage.failed(began=6.0, now=90.0) == TryAgain(5.0)
    assert outage.failed(began=6.0, now=107.0) == GiveUp(101.0)


def test_a_server_that_comes_back_ends_the_outage() -> None:
    outage = watch()
    assert outage.failed(began=0.0, now=99.0) == TryAgain(5.0)
    outage.succeeded(99.5)
    assert outage.failed(began=0.0, now=200.0) == GiveBack()
    assert outage.failed(began=150.0, now=200.0) == TryAgain(5.0), "counted from when this one was asked for"
