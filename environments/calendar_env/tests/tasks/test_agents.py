"""Scores mean what they say: all for who does what was asked, nothing for nothing, less than nothing for damage."""

from __future__ import annotations

import zlib

import pytest
from calendar_env.tasks import FAMILIES, LEVELS, generate
from calendar_env.tasks.agents import CARELESS, act_at_random, destroy, do_nothing
from calendar_env.tasks.playing import play, prepared
from calendar_env.tasks.solvers import solve

CASES = [(family, level) for family in FAMILIES for level in LEVELS]


def seeds(family: str, level: str, count: int) -> range:
    """Others for each case, so that the companies differ too."""
    first = zlib.crc32(f"{family} {level}".encode()) % 10_000
    return range(first, first + count)


@pytest.mark.parametrize(("family", "level"), CASES)
def test_the_solver_gets_all_and_idleness_nothing_and_destruction_less(family: str, level: str) -> None:
    for number, seed in enumerate(seeds(family, level, 2)):
        task = generate(family, level, seed)
        start = prepared(task)
        solved = play(task, solve, start=start)
        assert solved.value == 1.0, (task.id, solved, task.prompt)
        assert not solved.collateral
        idle = play(task, do_nothing, start=start)
        assert idle.value == 0.0, (task.id, idle)
        assert not idle.collateral
        if number == 0:
            assert play(task, destroy, start=start).value < idle.value, task.id
            assert play(task, act_at_random, start=start).value < 1.0


@pytest.mark.parametrize("family", FAMILIES)
def test_every_flaw_costs(family: str) -> None:
    committed: set[str] = set()
    task = generate(family, LEVELS[zlib.crc32(family.encode()) % 3], 40)
    start = prepared(task)
    for flawed in CARELESS:
        score = play(task, flawed, start=start)
        if flawed.committed:
            committed.add(flawed.name)
            assert score.value < 1.0, (task.id, flawed.name, score, task.prompt)
            assert score.collateral or min(score.parts.values()) < 1.0
    assert len(committed) >= 2


def test_each_flaw_comes_to_bear_somewhere() -> None:
    looked_for = {
        "wrong time zone": ("create_event", "easy"),
        "an hour late": ("move_meeting", "easy"),
        "whole series": ("cancel_instance", "easy"),
        "forgets the room": ("book_room", "medium"),
        "wrong person": ("create_event", "medium"),
        "too many rights": ("team_calendar", "medium"),
        "wrong reply": ("reply_invitations", "easy"),
        "no mail": ("cancel_instance", "medium"),
        "everything twice": ("weekly_series", "easy"),
        "stops before it acts": ("clean_duplicates", "easy"),
        "meddles": ("hand_over", "easy"),
        "wrong answer": ("answer_question", "easy"),
    }
    assert looked_for.keys() == {each.name for each in CARELESS}
    for flawed in CARELESS:
        score = play(generate(*looked_for[flawed.name], 5), flawed)
        assert flawed.committed, flawed.name
        assert score.value < 1.0, (flawed.name, score)


def test_reading_changes_nothing() -> None:
    task = generate("find_slot", "hard", 2)
    start = prepared(task)
    before = start.dump()

    def reads(task: object, tools: object) -> str:
        from calendar_env.tasks.solvers.desk import Desk

        desk = Desk(tools, before["events"] and next(iter(before["users"])))  # type: ignore[arg-type]
        for name in ("calendarList_list", "users_list", "groups_list", "rooms_list", "settings_list", "colors_get"):
            desk.call(name)
        desk.call("events_list", calendarId="primary")
        desk.call("acl_list", calendarId="primary")
        return "I only looked."

    score = play(task, reads, start=start)
    assert (score.value, score.collateral) == (0.0, [])
    assert start.dump() == before
