from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from openenv_trl.client.heartbeat import Heartbeat, Pulse


def _beating(timeout_s: float | None = 5.0) -> Heartbeat:
    heartbeat = Heartbeat(20.0, timeout_s)
    heartbeat.start(100.0)
    return heartbeat


def test_a_peer_that_talks_is_not_asked() -> None:
    heartbeat = _beating()
    assert heartbeat.wake_at == 120.0
    assert heartbeat.wake(120.0, heard=True) is Pulse.WAIT
    assert heartbeat.wake_at == 140.0


def test_a_silent_peer_is_asked_and_then_given_up() -> None:
    heartbeat = _beating()
    assert heartbeat.wake(120.0, heard=False) is Pulse.PING
    assert heartbeat.wake_at == 125.0
    assert heartbeat.wake(125.0, heard=False) is Pulse.DEAD


def test_a_peer_that_answers_begins_a_new_interval() -> None:
    heartbeat = _beating()
    heartbeat.wake(120.0, heard=False)
    assert heartbeat.wake(125.0, heard=True) is Pulse.WAIT
    assert heartbeat.wake_at == 145.0
    assert heartbeat.wake(145.0, heard=False) is Pulse.PING


def test_a_peer_is_not_given_up_for_a_loop_that_stood_still() -> None:
    heartbeat = _beating()
    heartbeat.wake(120.0, heard=False)
    assert heartbeat.wake(190.0, heard=False) is Pulse.PING
    assert heartbeat.wake(195.0, heard=False) is Pulse.DEAD


def test_without_a_timeout_a_silent_peer_is_asked_for_ever() -> None:
    heartbeat = _beating(timeout_s=None)
    for _ in range(5):
        assert heartbeat.wake(heartbeat.wake_at, heard=False) is Pulse.PING


@given(st.lists(st.tuples(st.floats(0, 100), st.booleans())))
def test_no_peer_is_given_up_that_was_not_asked_in_time(events: list[tuple[float, bool]]) -> None:
    heartbeat = _beating()
    asked_at: float | None = None
    for late, heard in events:
        now = heartbeat.wake_at + late
        pulse = heartbeat.wake(now, heard)
        if pulse is Pulse.DEAD:
            assert asked_at is not None
            assert not heard
            assert now >= asked_at + 5.0
            break
        asked_at = now if pulse is Pulse.PING else None
        assert heartbeat.wake_at > now
