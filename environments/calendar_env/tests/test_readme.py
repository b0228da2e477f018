"""What the README shows is what happens: its episode, its tools, its arguments and its variables."""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path

from calendar_env import measure
from calendar_env.server.access import ROLES
from calendar_env.server.calendar_environment import CORE_TOOLS, CalendarEnvironment
from calendar_env.server.settings import ENVIRONMENT_VARIABLES, CalendarSettings
from calendar_env.server.tools.public_names import PUBLIC_NAMES
from calendar_env.tasks import FAMILIES, LEVELS

README = (Path(__file__).resolve().parents[1] / "README.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    return README.partition(f"\n{title}\n")[2].partition("\n## ")[0]


def test_the_episode_goes_as_shown() -> None:
    shown = README.partition("```text\n")[2].partition("\n```")[0]
    opening, *turns = shown.split("\n\n> ")
    environment = CalendarEnvironment()
    seen = environment.reset(task="cancel_instance", level="easy", task_seed=2)
    assert " ".join(opening.split()) == " ".join(seen.message.split())
    *turns, last = turns
    for turn in (*turns, last.rpartition("\nreward")[0]):
        name, _, rest = turn.replace("\n", " ").partition(" ")
        arguments, end = json.JSONDecoder().raw_decode(rest)
        seen = environment.call_tool(name, arguments)
        told = rest[end:].strip()
        if told.startswith("{"):
            assert json.loads(told) == json.loads(seen.message)
        else:
            assert told == seen.message
    assert last.endswith(f"reward {seen.reward:g}")
    assert (seen.reward, seen.done) == (1.0, True)


def test_the_tools_are_those_in_the_table() -> None:
    rows = re.findall(r"^\| (`[^|]+`) \|", section("## Tools").partition("### Access")[0], re.MULTILINE)
    told = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert sorted(told) == sorted(tool.name for tool in CalendarEnvironment.list_tools())
    assert f"one of {len(told)} tools" in README
    assert f"offers the {len(CORE_TOOLS)} that" in README
    assert f"`query_freebusy` and {len(PUBLIC_NAMES) - 3}\nothers" in README


def test_there_are_as_many_kinds_of_tasks_as_said() -> None:
    assert (len(FAMILIES), LEVELS) == (18, ("easy", "medium", "hard"))
    assert "eighteen kinds of tasks in three levels" in README


def test_the_schemas_are_as_long_as_said() -> None:
    tools = CalendarEnvironment.list_tools()
    whole = len(json.dumps([tool.model_dump() for tool in tools]))
    core = len(json.dumps([tool.model_dump() for tool in tools if tool.name in CORE_TOOLS]))
    assert f"{round(whole, -3) // 1000} 000 characters" in README
    assert f"with {round(core, -3) // 1000} 000" in README


def test_the_roles_arguments_and_variables_are_those_in_the_tables() -> None:
    assert tuple(re.findall(r"^\| `(\w+)` \|", section("## Tools"), re.MULTILINE)[-5:]) == ROLES
    told = set(re.findall(r"^\| `(\w+)` \|", section("## Arguments of reset"), re.MULTILINE))
    assert told == set(inspect.signature(CalendarEnvironment.reset).parameters) - {"self", "kwargs"}
    assert f"ends by itself; {CalendarSettings().max_steps}, and" in README
    variables = set(re.findall(r"^\| `([A-Z_]+)`", README, re.MULTILINE))
    assert variables == {*ENVIRONMENT_VARIABLES, "MAX_CONCURRENT_ENVS"}


def test_the_longest_solution_takes_as_many_steps_as_said() -> None:
    figures = measure.measure(seeds=1, families=("respect_permissions", "share_calendar"))
    assert figures["most_steps"] == 14
    assert "longest scripted solution takes 14" in README
    assert 100 < figures["database_kb"] < 300
