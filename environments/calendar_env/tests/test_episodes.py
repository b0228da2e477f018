"""An episode: a task in words, calls that count, a score at its end; the same again for the same seeds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any

import pytest
from calendar_env.models import CalendarAction, CalendarObservation
from calendar_env.server.calendar_environment import CORE_TOOLS, CalendarEnvironment
from calendar_env.server.settings import CalendarSettings, settings_from_variables
from calendar_env.server.store import CalendarStore
from calendar_env.server.task import Score
from calendar_env.server.tools.public_names import PUBLIC_NAMES, own_call

from openenv_trl import check_environment
from openenv_trl.errors import ActionValidationError, ConfigurationError, SessionStateError

from .conftest import ANN, BOB, NOW, timed


class OneMeeting:
    """A task: there shall be one event more, and it shall be called as the agent says at the end."""

    prompt = "Make an event, and tell me its title."
    acting_user = ANN
    now: datetime = NOW

    def __init__(self, seed: int) -> None:
        self.id = f"one_meeting/only/{seed}"

    def seed_database(self, store: CalendarStore) -> None:
        store.add_user(ANN, "Ann Weber")
        store.add_user(BOB, "Bob Okoro")
        store.add_event(ANN, timed("2026-03-03", "09:00", "10:00", id="old00", summary="Old"))

    def score(self, before: CalendarStore, after: CalendarStore, message: str) -> Score:
        old, new = before.dump()["events"], after.dump()["events"]
        added = [event for name, event in new.items() if name not in old]
        harmed = [f"{name} was changed" for name in old if old[name] != new.get(name)]
        named = float(bool(added) and added[0].get("summary") == message)
        return Score(len(added) / 2 + named / 2 - len(harmed), {"made": len(added), "named": named}, harmed)


class OneTask:
    """A source of that task alone."""

    families, levels = ("one_meeting",), ("only",)

    def generate(self, family: str, level: str, seed: int) -> OneMeeting:
        return OneMeeting(seed)


SOURCE = OneTask()


@pytest.fixture
def environment() -> CalendarEnvironment:
    return CalendarEnvironment(tasks=SOURCE)


def call(tool_name: str, **arguments: Any) -> CalendarAction:
    return CalendarAction(action_type="ToolCallAction", tool_name=tool_name, arguments=arguments)


INSERT = call("events_insert", calendarId="primary", **timed("2026-03-04", "09:00", "10:00"), summary="New")
LIST = CalendarAction(action_type="ListToolsAction")


def test_a_reset_tells_the_task_and_the_state_where_it_plays(environment: CalendarEnvironment) -> None:
    opening = environment.reset(seed=5, episode_id="mine")
    assert (opening.message, opening.reward, opening.done) == (OneMeeting.prompt, None, False)
    state = environment.state
    assert (state.episode_id, state.task_id, state.acting_user) == ("mine", "one_meeting/only/5", ANN)
    assert (state.now, state.time_zone, state.step_count) == ("2026-03-02T08:00+01:00", "Europe/Berlin", 0)


def test_the_outcome_is_scored_when_the_agent_finishes(environment: CalendarEnvironment) -> None:
    environment.reset(seed=1)
    made = environment.step(INSERT)
    assert (made.success, made.reward, made.done, made.metadata) == (True, 0.0, False, {})
    ended = environment.step(call("finish", message="New"))
    assert (ended.reward, ended.done) == (1.0, True)
    assert ended.metadata == {"score": {"value": 1.0, "parts": {"made": 1.0, "named": 1.0}, "collateral": []}}
    for late in (INSERT, LIST, call("finish")):
        with pytest.raises(SessionStateError, match="reset"):
            environment.step(late)
    assert environment.state.step_count == 2


def test_damage_and_idleness_are_scored_as_they_are(environment: CalendarEnvironment) -> None:
    environment.reset(seed=1)
    assert environment.step(call("finish")).reward == 0.0
    environment.reset(seed=1)
    environment.step(call("events_delete", calendarId="primary", eventId="old00"))
    ended = environment.step(call("finish", message="done"))
    assert (ended.reward, ended.metadata["score"]["collateral"]) == (-1.0, ["old00 was changed"])


def test_the_last_allowed_call_ends_the_episode_and_is_scored_too(environment: CalendarEnvironment) -> None:
    environment.reset(seed=1, max_steps=2)
    assert not environment.step(LIST).done
    ended = environment.step(INSERT)
    assert (ended.done, ended.reward, ended.metadata["truncated"]) == (True, 0.5, True)
    assert ended.resource["summary"] == "New"
    environment.reset(seed=1, max_steps=1)
    finished = environment.step(call("finish"))
    assert (finished.done, "truncated" in finished.metadata) == (True, False)


def test_the_public_rule_rewards_each_call_by_how_it_went(environment: CalendarEnvironment) -> None:
    environment.reset(seed=1, reward="public")
    rewards = {
        "list": environment.step(LIST).reward,
        "success": environment.step(INSERT).reward,
        "refused": environment.step(call("events_get", calendarId="primary", eventId="none")).reward,
        "wrong arguments": environment.step(call("events_get")).reward,
        "unknown tool": environment.step(call("explode")).reward,
        "no tool": environment.step(CalendarAction(action_type="ToolCallAction")).reward,
    }
    assert rewards == {
        "list": 0.1,
        "success": 1.0,
        "refused": -0.5,
        "wrong arguments": -0.5,
        "unknown tool": -0.5,
        "no tool": -1.0,
    }
    ended = environment.step(call("finish"))
    assert (ended.reward, ended.metadata["score"]["value"]) == (1.0, 0.5)


@pytest.mark.parametrize(
    ("action", "code", "text"),
    [
        (call("events_get", calendarId="primary", eventId="none"), 404, "events_list names the events"),
        (call("events_get", calendarId=BOB, eventId="old00"), 404, "events_list"),
        (call("events_insert", calendarId=BOB, **timed("2026-03-04", "09:00", "10:00")), 403, "writer access"),
        (call("events_insert", calendarId="primary", start={"dateTime": 5}), 400, "start.dateTime"),
        (call("events_insert", calendarId="primary", title="x"), 400, "title"),
        (call("explode"), 400, "events_list"),
        (CalendarAction(action_type="ToolCallAction"), 400, "tool_name"),
    ],
)
def test_a_refusal_is_an_observation_that_says_what_to_change_and_counts(
    environment: CalendarEnvironment, action: CalendarAction, code: int, text: str
) -> None:
    environment.reset(seed=1)
    refused = environment.step(action)
    assert (refused.success, refused.reward, refused.done) == (False, 0.0, False)
    assert refused.message == refused.error_message
    assert text in refused.message
    assert refused.message.startswith(f"Error {code} (")
    result = refused.tool_result
    assert result is not None
    assert (result["status_code"], result["isError"]) == (code, True)
    assert json.loads(result["text"])["error"]["code"] == code
    assert environment.state.step_count == 1
    assert environment.step(call("finish")).metadata["score"]["collateral"] == []


def test_actions_and_tools_are_the_same_steps() -> None:
    by_action, by_tool = CalendarEnvironment(tasks=SOURCE), CalendarEnvironment(tasks=SOURCE)
    assert by_action.reset(seed=1) == by_tool.reset(seed=1)
    for name, arguments in (
        ("events_insert", {"calendarId": "primary", **timed("2026-03-04", "09:00", "10:00"), "summary": "New"}),
        ("events_list", {"calendarId": "primary", "singleEvents": True}),
        ("events_get", {"calendarId": "primary", "eventId": "none"}),
        ("finish", {"message": "New"}),
    ):
        assert by_action.step(call(name, **arguments)) == by_tool.call_tool(name, arguments)
    assert by_action.state.step_count == by_tool.state.step_count == 4


def test_a_wrong_reset_says_what_is_known_and_leaves_the_episode(environment: CalendarEnvironment) -> None:
    with pytest.raises(SessionStateError, match="reset"):
        environment.step(LIST)
    environment.reset(seed=1)
    environment.step(INSERT)
    for arguments, text in (
        ({"sed": 1}, "task_seed"),
        ({"sql_content": "INSERT"}, "not of SQL"),
        ({"task": "two_meetings"}, "one_meeting"),
        ({"level": "hard"}, "only"),
        ({"seed": "1"}, "seed must be an integer"),
        ({"task_seed": True}, "task_seed must be an integer"),
        ({"max_steps": 0}, "max_steps"),
        ({"reward": "much"}, "reward"),
    ):
        with pytest.raises(ConfigurationError, match=text):
            environment.reset(**arguments)  # type: ignore[arg-type]
    assert environment.step(call("finish", message="New")).reward == 1.0


class Kinds(OneTask):
    """A source of more families and levels."""

    families, levels = ("a", "b", "c"), ("low", "high")


def test_a_seed_draws_what_of_the_task_is_not_given() -> None:
    environment = CalendarEnvironment(tasks=Kinds())
    environment.reset(seed=3, task_seed=9)
    first = environment.state
    assert (first.seed, first.task_seed, first.task_id) == (3, 9, "one_meeting/only/9")
    environment.reset(task="b", task_seed=9)
    assert (environment.state.task, environment.state.task_seed) == ("b", 9)
    drawn = set()
    for seed in range(6):
        environment.reset(seed=seed)
        drawn.add((environment.state.task, environment.state.level))
    assert len(drawn) == 6


PLAY = """
import json, sys
from calendar_env.models import CalendarAction
from calendar_env.server.calendar_environment import CalendarEnvironment
environment = CalendarEnvironment()
seen = []
for seed in (1, 2, 3):
    seen.append(environment.reset(seed=seed).model_dump())
    body = {"start": {"dateTime": "2026-03-04T09:00:00"}, "end": {"dateTime": "2026-03-04T10:00:00"}}
    for name, arguments in (
        ("calendarList_list", {}),
        ("events_list", {"calendarId": "primary", "singleEvents": True, "maxResults": 20}),
        ("events_insert", {"calendarId": "primary", **body}),
        ("calendars_insert", {"summary": "x"}),
        ("events_list", {"calendarId": "primary", "q": "a"}),
        ("finish", {"message": "x"}),
    ):
        action = CalendarAction(action_type="ToolCallAction", tool_name=name, arguments=arguments)
        seen.append(environment.step(action).model_dump())
print(json.dumps(seen))
"""


def test_equal_seeds_and_calls_give_equal_observations_in_every_process() -> None:
    runs = [
        subprocess.run(
            [sys.executable, "-c", PLAY],
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "TZ": zone_name},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed, zone_name in (("1", "UTC"), ("2", "Asia/Tokyo"))
    ]
    assert runs[0] == runs[1]
    assert len(json.loads(runs[0])) == 21


def test_sessions_of_one_task_do_not_touch_one_another() -> None:
    one, other = CalendarEnvironment(tasks=SOURCE), CalendarEnvironment(tasks=SOURCE)
    for each in (one, other):
        each.reset(seed=1)
    one.step(INSERT)
    assert len(other.step(call("events_list", calendarId="primary")).resource["items"]) == 1
    other.close()
    assert len(one.step(call("events_list", calendarId="primary")).resource["items"]) == 2
    one.reset(seed=1)
    assert len(one.step(call("events_list", calendarId="primary")).resource["items"]) == 1


def test_sessions_in_threads_share_a_prepared_task_and_nothing_else() -> None:
    def play(number: int) -> list[float | None]:
        environment, rewards = CalendarEnvironment(tasks=SOURCE), []
        for _ in range(20):
            environment.reset(seed=1)
            for _ in range(number % 3):
                environment.step(INSERT)
            rewards.append(environment.step(call("finish", message="New")).reward)
        environment.close()
        return rewards

    with ThreadPoolExecutor(8) as pool:
        played = list(pool.map(play, range(24)))
    assert played == [[(0.0, 1.0, 1.5)[number % 3]] * 20 for number in range(24)]


def test_the_public_environments_tools_are_found_by_their_names(environment: CalendarEnvironment) -> None:
    names = {tool.name for tool in CalendarEnvironment.list_tools()}
    assert set(PUBLIC_NAMES.values()) <= names
    assert len(set(PUBLIC_NAMES.values())) == len(PUBLIC_NAMES) == 32
    environment.reset(seed=1)
    body = {"summary": "New", **timed("2026-03-04", "09:00", "10:00")}
    assert environment.step(call("create_event", calendarId="primary", body=body)).resource["summary"] == "New"
    assert environment.step(call("get_user_by_email", email=BOB)).resource["name"] == "Bob Okoro"
    assert own_call("events_list", {"calendarId": "primary"}) == ("events_list", {"calendarId": "primary"})


def test_tools_are_listed_with_schemas_in_one_piece(environment: CalendarEnvironment) -> None:
    environment.reset(seed=1)
    listed = environment.step(LIST).tools_list
    assert listed is not None
    assert [tool["name"] for tool in listed] == [tool.name for tool in CalendarEnvironment.list_tools()]
    text = json.dumps(listed)
    for noise in ("$ref", "$defs", '"null"', '"title"', '"default": null'):
        assert noise not in text
    insert = next(tool["inputSchema"] for tool in listed if tool["name"] == "events_insert")
    assert insert["required"] == ["calendarId"]
    assert insert["properties"]["attendees"]["items"]["required"] == ["email"]
    assert insert["properties"]["start"]["properties"].keys() == {"dateTime", "date", "timeZone"}
    assert all(len(tool["description"]) > 10 for tool in listed)


def test_fewer_tools_are_offered_and_taken_where_the_server_says_so() -> None:
    environment = CalendarEnvironment(settings_from_variables({"CALENDAR_TOOLS": "core"}), tasks=SOURCE)
    environment.reset(seed=1)
    assert {tool.name for tool in environment.offered_tools()} == set(CORE_TOOLS)
    assert environment.step(INSERT).success
    with pytest.raises(ActionValidationError, match="events_insert"):
        environment.call_tool("calendars_clear", {"calendarId": "primary"})
    assert not environment.step(call("calendars_clear", calendarId="primary")).success
    with pytest.raises(ConfigurationError, match="tools"):
        settings_from_variables({"CALENDAR_TOOLS": "some"})
    chosen = settings_from_variables({"CALENDAR_MAX_STEPS": "7", "CALENDAR_REWARD": "public", "CALENDAR_TOOLS": ""})
    assert chosen == CalendarSettings(max_steps=7, reward="public")


def test_the_environment_keeps_the_contract() -> None:
    report = check_environment(CalendarEnvironment, steps=4, seeds=(0, 1))
    assert list(report) == []


def test_observations_stay_as_they_were(environment: CalendarEnvironment) -> None:
    environment.reset(seed=1)
    first: CalendarObservation = environment.step(call("events_list", calendarId="primary"))
    copy = first.model_copy(deep=True)
    environment.step(INSERT)
    environment.step(call("finish"))
    assert first == copy
