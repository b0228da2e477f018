from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from openenv_trl.server.reaper import Reaper
from openenv_trl.server.session import SessionEnd


def _reaped(reaper: Reaper, now: float, rest: dict[str, float | None]) -> dict[str, SessionEnd]:
    return {each.session_id: each.end for each in reaper.sweep(now, rest.get)}


def test_a_session_that_nobody_holds_is_reaped_after_the_detached_timeout() -> None:
    reaper = Reaper(idle_timeout_s=1000.0, detached_timeout_s=10.0)
    reaper.add("a", 0.0, held=False)
    assert reaper.next_at == 10.0
    assert _reaped(reaper, 10.0, {"a": 4.0}) == {}
    assert reaper.next_at == 14.0
    assert _reaped(reaper, 14.0, {"a": 4.0}) == {"a": SessionEnd.DETACHED}
    assert reaper.next_at == math.inf


def test_a_held_session_rests_as_long_as_the_idle_timeout() -> None:
    reaper = Reaper(idle_timeout_s=100.0, detached_timeout_s=10.0)
    reaper.add("a", 0.0, held=True)
    assert _reaped(reaper, 99.0, {"a": 0.0}) == {}
    assert _reaped(reaper, 100.0, {"a": 0.0}) == {"a": SessionEnd.IDLE}


def test_a_session_whose_call_runs_is_never_reaped() -> None:
    reaper = Reaper(idle_timeout_s=100.0, detached_timeout_s=10.0)
    reaper.add("a", 0.0, held=False)
    for now in (10.0, 50.0, 1000.0):
        assert _reaped(reaper, now, {"a": None}) == {}
    # Its call ended just now: the timeout begins with that.
    assert _reaped(reaper, 1010.0, {"a": 1005.0}) == {}
    assert reaper.next_at == 1015.0


def test_the_timeout_after_a_connection_begins_with_its_going() -> None:
    reaper = Reaper(idle_timeout_s=None, detached_timeout_s=10.0)
    reaper.add("a", 0.0, held=True)
    assert reaper.next_at == math.inf
    reaper.release("a", 500.0)
    assert _reaped(reaper, 509.0, {"a": 0.0}) == {}
    reaper.hold("a")
    assert _reaped(reaper, 600.0, {"a": 0.0}) == {}
    reaper.release("a", 700.0, timeout_s=2.0)
    assert _reaped(reaper, 702.0, {"a": 0.0}) == {"a": SessionEnd.DETACHED}


def test_no_timeout_is_for_ever() -> None:
    reaper = Reaper(None, None)
    reaper.add("a", 0.0, held=False)
    reaper.add("b", 0.0, held=True)
    assert _reaped(reaper, 1e12, {"a": 0.0, "b": 0.0}) == {}


def test_a_dismissed_session_ends_when_it_rests() -> None:
    reaper = Reaper(1000.0, 1000.0)
    reaper.add("a", 0.0, held=True)
    reaper.dismiss("a", 5.0)
    assert _reaped(reaper, 5.0, {"a": None}) == {}
    assert _reaped(reaper, 6.0, {"a": 5.5}) == {"a": SessionEnd.DRAINED}


def test_what_is_kept_of_ended_sessions_stays_small() -> None:
    reaper = Reaper(1e6, 1e6)
    for number in range(10_000):
        reaper.add(str(number), float(number), held=True)
        reaper.forget(str(number))
    assert len(reaper._schedule) < 200


@given(
    st.lists(
        st.tuples(st.sampled_from(["add", "hold", "release", "call", "forget", "pass"]), st.sampled_from("abc")),
        max_size=60,
    )
)
def test_a_session_is_reaped_once_its_rest_is_over_and_never_before(events: list[tuple[str, str]]) -> None:
    idle, detached = 20.0, 5.0
    reaper = Reaper(idle, detached)
    now, last_call, held, free_since = 0.0, {}, {}, {}
    for event, name in events:
        now += 1.0
        if event == "add" and name not in held:
            reaper.add(name, now, held=False)
            last_call[name], held[name], free_since[name] = now, False, now
        elif name in held and event == "hold":
            reaper.hold(name)
            held[name] = True
        elif name in held and event == "release":
            reaper.release(name, now)
            held[name], free_since[name] = False, now
        elif name in held and event == "call":
            last_call[name] = now
        elif name in held and event == "forget":
            reaper.forget(name)
            del held[name]
        due = {
            each
            for each in held
            if now >= (last_call[each] + idle if held[each] else max(last_call[each], free_since[each]) + detached)
        }
        reaped = set(_reaped(reaper, now, dict(last_call)))
        assert reaped <= due
        # One that was held when it was last looked at is looked at again in time all the same.
        assert reaped == due
        for each in reaped:
            del held[each]
