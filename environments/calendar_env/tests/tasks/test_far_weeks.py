"""What happens years away counts as well: it is looked at where something was changed."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from calendar_env.server.task import Score
from calendar_env.tasks import generate
from calendar_env.tasks.playing import play, prepared
from calendar_env.tasks.solvers import Desk, solve
from calendar_env.tasks.solvers.changing import change_following
from calendar_env.tasks.solvers.desk import when
from calendar_env.tasks.task import GeneratedTask
from calendar_env.tasks.world import at


def rule_of(task: GeneratedTask) -> str:
    events = prepared(task).dump()["events"].values()
    return next(e["recurrence"][0] for e in events if e["summary"] == task.spec["title"] and "recurrence" in e)


def split(task: GeneratedTask, ending: str) -> Score:
    """The score of someone who splits the series rightly, and ends the new one so."""

    def agent(task: GeneratedTask, tools: Any) -> str:
        desk = Desk(tools, task.acting_user)
        message = change_following(dict(task.spec), desk)
        new = next(
            event
            for event in desk.all_pages("events_list", calendarId="primary", q=task.spec["title"])
            if event.get("recurrence") and event["start"]["dateTime"][11:16] == task.spec["clock"]
        )
        rule = ";".join(p for p in new["recurrence"][0].split(";") if not p.startswith(("COUNT", "UNTIL")))
        desk.call("events_patch", calendarId="primary", eventId=new["id"], recurrence=[rule + ending])
        return message

    return play(task, agent)


def tasks_where(level: str, ends: bool, far: bool = False) -> list[GeneratedTask]:
    made = [generate("change_following", level, seed) for seed in range(14)]
    rules = [(task, rule_of(task)) for task in made]
    return [
        task
        for task, rule in rules
        if ("COUNT" in rule or "UNTIL" in rule) == ends and (not far or "INTERVAL=2;COUNT=24" in rule)
    ][:3]


@pytest.mark.parametrize("ending", [";COUNT=24", ""])
def test_a_series_that_ends_in_a_year_must_end_then(ending: str) -> None:
    tasks = tasks_where("medium", ends=True, far=True)
    assert tasks
    for task in tasks:
        score = split(task, ending)
        assert score.value == 0.75, score
        assert "before or after the weeks" in score.collateral[0]


@pytest.mark.parametrize("level", ["easy", "medium"])
def test_a_series_without_an_end_must_go_on(level: str) -> None:
    tasks = tasks_where(level, ends=False)
    assert tasks
    for task in tasks:
        assert split(task, "").value == 1.0
        last = at((task.now + timedelta(weeks=27)).date(), "23:00", "UTC")
        assert -0.25 < split(task, f";UNTIL={last:%Y%m%dT%H%M%SZ}").value < 0.8


def after_solving(family: str, level: str, seed: int, harm: Any) -> Score:
    """The score of someone who solves the task and then does harm."""

    def agent(task: GeneratedTask, tools: Any) -> str:
        message = solve(task, tools)
        harm(Desk(tools, task.acting_user), task)
        return message

    return play(generate(family, level, seed), agent)


def test_an_event_that_comes_again_every_year_is_not_the_one_asked_for() -> None:
    def harm(desk: Desk, task: GeneratedTask) -> None:
        event = desk.event_on(task.spec["day"], task.spec["zone"], task.spec["title"])
        desk.call("events_patch", calendarId="primary", eventId=event["id"], recurrence=["RRULE:FREQ=YEARLY"])

    assert after_solving("create_event", "easy", 1, harm).value == 0.75


@pytest.mark.parametrize("year", [1990, 2020, 2035])
def test_a_series_of_another_decade_costs_as_any_event(year: int) -> None:
    def harm(desk: Desk, task: GeneratedTask) -> None:
        start = task.now.replace(year=year, day=1)
        guests = [{"email": "stranger@elsewhere.example"}]
        rule = ["RRULE:FREQ=DAILY;COUNT=30"]
        times = when(start, 30, "UTC")
        desk.call("events_insert", calendarId="primary", summary="x", attendees=guests, recurrence=rule, **times)

    assert after_solving("create_event", "easy", 1, harm).value == 0.75


def test_a_single_event_of_another_decade_costs_as_any_event() -> None:
    def harm(desk: Desk, task: GeneratedTask) -> None:
        start = task.now.replace(year=2040, day=1)
        desk.call("events_insert", calendarId="primary", summary="x", **when(start, 30, "UTC"))

    assert after_solving("create_event", "easy", 1, harm).value == 0.75


def test_instances_deleted_after_the_weeks_that_matter_cost() -> None:
    def harm(desk: Desk, task: GeneratedTask) -> None:
        begin = task.now + timedelta(weeks=28)
        instances = [e for e in desk.events(begin, begin + timedelta(weeks=60)) if e["summary"] == task.spec["title"]]
        for event in instances[:20]:
            desk.call("events_delete", calendarId="primary", eventId=event["id"])

    seed = int(tasks_where("easy", ends=False)[0].id.rpartition("/")[2])
    score = after_solving("change_following", "easy", seed, harm)
    assert 0.7 < score.value < 0.75
    assert "20 times before or after the weeks" in score.collateral[0]
