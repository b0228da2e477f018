"""Who gives way when a slot is wanted: the client that has been gone the longest, and none that may come back."""

from __future__ import annotations

from openenv_trl.server.departed import COMES_BACK_S, Departed


def everyone(session_id: str) -> bool:
    return True


def test_nobody_gives_way_where_nobody_is_gone() -> None:
    assert Departed().gives_way(0.0, everyone) is None


def test_the_longest_gone_gives_way_first_and_not_before_it_would_have_come_back() -> None:
    departed = Departed()
    departed.add("a", 1.0)
    departed.add("b", 2.0)
    assert departed.gives_way(1.5, everyone) == ("a", COMES_BACK_S - 0.5)
    assert departed.gives_way(1.0 + COMES_BACK_S, everyone) == ("a", 0.0)


def test_one_that_came_back_or_is_busy_does_not_give_way() -> None:
    departed = Departed()
    for session_id in ("a", "b", "c"):
        departed.add(session_id, 0.0)
    departed.remove("a")
    departed.remove("never there")
    assert departed.gives_way(9.0, lambda session_id: session_id != "b") == ("c", 0.0)
    assert len(departed) == 2
