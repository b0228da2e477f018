"""What an agent is shown, what its address asks for, and how progress grows: without a server."""

from __future__ import annotations

import asyncio
import json
from datetime import date
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from openenv_trl.errors import ConfigurationError
from openenv_trl.progress import report_progress
from openenv_trl.server.mcp_opening import WAIT_S, opening_of
from openenv_trl.server.mcp_progress import ProgressReports
from openenv_trl.server.mcp_results import agent_result, agent_tools, instructions
from openenv_trl.types import Observation, Tool
from openenv_trl.wire.tools import function_result, mcp_tool

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


class Card(Observation):
    text: str = ""
    drawn: date | None = None


@given(JSON)
def test_any_value_comes_back_as_text_and_as_structure(value: Any) -> None:
    result = agent_result(value)
    assert result["structuredContent"] == (value if isinstance(value, dict) else {"result": value})
    text = result["content"][0]["text"]
    assert text == value if isinstance(value, str) else json.loads(text) == value


@given(st.floats(), st.booleans(), st.text(min_size=8))
def test_the_trainers_part_of_an_observation_is_never_shown(reward: float, done: bool, answer: str) -> None:
    observation = Card(text="card", reward=reward, done=done, metadata={"answer": f"<{answer}>"})
    result = agent_result(observation)
    assert set(result["structuredContent"]) == {"text", "drawn"} | ({"done"} if done else set())
    assert "metadata" not in json.dumps(result)
    assert "reward" not in json.dumps(result)
    assert (result["content"][-1]["text"] == "The episode is over.") is done
    assert "reward" not in instructions("A game.", observation)


def test_what_json_has_no_word_for_is_shown_as_text() -> None:
    result = agent_result(Card(drawn=date(2025, 1, 2)))
    assert result["structuredContent"]["drawn"] == "2025-01-02"


@given(JSON)
def test_a_result_of_the_public_dialect_is_shown_in_the_protocols_words(value: Any) -> None:
    result = agent_result(function_result(value, {"x-fastmcp-wrap-result": True}))
    assert result["structuredContent"] == {"result": value}
    assert set(result) == {"content", "structuredContent", "isError"}
    assert all(set(block) == {"type", "text"} for block in result["content"])
    assert "structuredContent" not in agent_result(function_result("words", None))


def test_a_schema_says_that_it_is_an_objects() -> None:
    assert agent_tools([mcp_tool(Tool(name="look"))]) == [{"name": "look", "inputSchema": {"type": "object"}}]


def test_a_query_gives_the_arguments_of_the_reset() -> None:
    opening = opening_of({"seed": "7", "episode_id": "12", "level": "hard", "sizes": "[1, 2]", "wait_s": "5"})
    assert opening.reset == {"seed": 7, "episode_id": "12", "level": "hard", "sizes": [1, 2]}
    assert (opening.session_id, opening.wait_s) == (None, 5.0)
    assert opening_of({}).wait_s == WAIT_S
    assert opening_of({"session_id": "s", "worker": "1"}).session_id == "s"


@pytest.mark.parametrize(
    "query",
    [{"seed": "x"}, {"seed": "-1"}, {"seed": "true"}, {"seed": "1.5"}, {"wait_s": "nan"}, {"wait_s": "-1"},
     {"wait_s": "inf"}, {"session_id": "s", "level": "hard"}],
)  # fmt: skip
def test_a_query_that_cannot_be_used_is_refused(query: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError):
        opening_of(query)


@pytest.mark.anyio
async def test_progress_grows_also_where_the_environment_speaks_late() -> None:
    heard: list[tuple[float, float | None]] = []
    silent = anyio.Event()

    async def report(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, total))
        if len(heard) == 2:
            silent.set()

    reports = ProgressReports(asyncio.get_running_loop())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(reports.send_all, report, 0.01)
        await silent.wait()
        reports.put(0.0001, 1.0, None)
        await anyio.to_thread.run_sync(reports.put, 0.0002, 1.0, "from a thread")
        reports.end()
    assert [progress for progress, _ in heard] == sorted({progress for progress, _ in heard})
    last, total = heard[-1]
    assert total is not None
    assert total - last == pytest.approx(1.0 - 0.0002)


def test_a_report_that_nobody_asked_for_goes_nowhere() -> None:
    report_progress(1, 2, "nobody hears this")
