"""Promises of a run's numbers: each says what the table says, and none is missing there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from openenv_trl.errors import EnvironmentExecutionError
from openenv_trl.rollout import EndReason, HedgeSlowCalls, RolloutStrategies, Task, Trajectory, Turn, rollout_metrics
from openenv_trl.rollout.actions import call_tool_action
from openenv_trl.rollout.metric_table import BIAS_METRICS, HEDGE_METRICS, METRICS
from openenv_trl.rollout.metrics import most_at_once, slowest_phase, time_shares
from openenv_trl.types import StepResult

PROMPT = [{"role": "user", "content": "Play."}]


def make(*turns: Turn, end: EndReason = EndReason.DONE, **fields: Any) -> Trajectory:
    return Trajectory(Task(PROMPT), [1], [2, 3, 4], [1, 0, 1], None, list(turns), end, **{"ended_s": 1.0, **fields})


def turn(*tools: str, **fields: Any) -> Turn:
    return Turn(actions=[call_tool_action(tool, {}) for tool in tools], rewards=[1.0] * len(tools), **fields)


def test_tool_calls_are_counted_by_tool_also_where_one_was_not_called() -> None:
    played = [make(turn("hit", "hit"), turn("stand")), make(turn("hit"))]
    failed = make(turn("hit"), end=EndReason.STEP_TIMEOUT)
    numbers = rollout_metrics([*played, failed], tools=["hit", "stand", "fold"])
    assert {name: numbers[f"tool_calls/{name}"] for name in ("hit", "stand", "fold")} == {
        "hit": 1.5,
        "stand": 0.5,
        "fold": 0.0,
    }
    moves = Turn(actions=[{"direction": 1}], rewards=[1.0])
    assert rollout_metrics([make(moves)])["tool_calls/act"] == 1.0, "an action that is no tool call"


def test_invalid_actions_are_a_share_of_all_that_were_asked_for() -> None:
    mistaken = turn("hit", "hit", mistaken_calls=1)
    numbers = rollout_metrics([make(mistaken), make(Turn(problems=["Error", "Error"]))])
    assert (numbers["invalid_actions"], numbers["invalid_fraction"]) == (3.0, 0.75)
    assert rollout_metrics([make()])["invalid_fraction"] == 0.0


def test_the_truncated_share_is_of_the_played() -> None:
    ends = [EndReason.DONE, EndReason.TRUNCATED, EndReason.MAX_TURNS, EndReason.MAX_TOKENS, EndReason.SESSION_LOST]
    assert rollout_metrics([make(turn("hit"), end=end) for end in ends])["truncated_fraction"] == 0.75


def test_cut_observations_are_counted_with_their_tokens() -> None:
    numbers = rollout_metrics([make(turn("a", truncated_observation_tokens=5), turn("b")), make(turn("c"))])
    assert (numbers["truncated_observations"], numbers["truncated_observation_tokens"]) == (1.0, 5.0)


def test_a_mean_of_nothing_is_absent_and_not_zero() -> None:
    numbers = rollout_metrics([make(turn("hit"), end=EndReason.STEP_TIMEOUT)])
    assert "reward" not in numbers
    assert "batch_size" not in numbers
    assert numbers["turns"] == 0.0


def test_percentiles_are_of_the_seconds_of_an_episode() -> None:
    numbers = rollout_metrics([make(started_s=float(n), ended_s=2.0 * n) for n in range(1, 101)])
    assert [numbers[f"episode_s/{name}"] for name in ("p50", "p95", "max")] == [50.0, 95.0, 100.0]


def test_the_slowest_phase_is_named_and_the_shares_are_whole() -> None:
    spent = make(turn(generate_s=2.0, environment_s=5.0), waiting_s=1.0, reset_s=1.0, started_s=1.0, ended_s=11.0)
    shares = time_shares([spent])
    assert shares == {"waiting": 0.1, "reset": 0.1, "generating": 0.2, "stepping": 0.5, "other": 0.1}
    assert slowest_phase([spent]) == ("stepping", 0.5)
    assert sum(time_shares([make(ended_s=0.0)]).values()) == 0.0


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 5)), min_size=1, max_size=12))
def test_the_most_at_once_is_what_counting_each_moment_finds(spans: list[tuple[int, int]]) -> None:
    trajectories = [make(started_s=float(start), ended_s=float(start + length)) for start, length in spans]
    counted = [sum(start <= at < start + length for start, length in spans) for at in range(30)]
    assert most_at_once(trajectories) == max(1, *counted)


def test_the_occupancy_is_the_share_of_the_open_episodes_that_a_batch_holds() -> None:
    trajectories = [make() for _ in range(8)]
    assert rollout_metrics(trajectories, batch_sizes=[8, 4])["batch_occupancy"] == 0.75


def table_of(page: str) -> list[tuple[str, str]]:
    rows = [line.strip("| ").split(" | ", 1) for line in page.splitlines() if line.startswith("| `")]
    return [(name.strip("` "), says) for name, says in rows]


def test_the_page_shows_the_numbers_of_the_engine() -> None:
    page = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()
    listed = [(metric.name, metric.says) for metric in (*METRICS, *BIAS_METRICS, *HEDGE_METRICS)]
    assert table_of(page)[: len(listed)] == listed


@pytest.mark.parametrize("ways", ["hedged", "hostile"])
def test_every_number_of_a_run_is_in_the_table_and_the_other_way_round(make_engine: Any, say: Any, ways: str) -> None:
    async def behave(session: Any, call: str, argument: Any) -> StepResult[Any]:
        if call == "step" and ways == "hostile" and session.number % 2:
            raise EnvironmentExecutionError("it broke")
        if call == "step" and ways == "hedged" and session.number == 0:
            await anyio.sleep_forever()
        return StepResult({"message": "Go on."}, reward=1.0 if call == "step" else None, done=call == "step")

    hedge = RolloutStrategies(straggler=HedgeSlowCalls(after_s=0.01, repeatable=True))
    settings = {"strategies": hedge} if ways == "hedged" else {}
    engine, _ = make_engine(behave, limits={"max_attempts": 1}, **settings)
    tasks = [Task(PROMPT, {"seed": n}, group=n // 4) for n in range(8)]
    anyio.run(engine.run, tasks, say('<tool_call>{"name": "hit", "arguments": {}}</tool_call>'))
    given = set(engine.metrics)
    groups = {"reason": [reason.value for reason in EndReason], "tool": ["hit", "bet"]}
    groups["phase"] = ["waiting", "reset", "generating", "stepping", "other"]
    listed: dict[str, set[str]] = {}
    for metric in (*METRICS, *BIAS_METRICS, *HEDGE_METRICS):
        found = re.search(r"<(\w+)>", metric.name)
        names = [metric.name.replace(found[0], each) for each in groups.get(found[1], ["none"])] if found else []
        listed[metric.name] = set(names or [metric.name])
    assert given <= set().union(*listed.values()), "no number without a word"
    absent = {name for name, names in listed.items() if not names & given}
    only_hedged = {metric.name for metric in HEDGE_METRICS}
    only_hostile = {"dropped/<reason>", "dropped/turns_ratio", "dropped/tokens_ratio", "dropped/seconds_ratio"}
    expected = only_hostile | {"hedge_mismatches"} if ways == "hedged" else only_hedged
    assert absent == expected | {"dropped/fraction/<environment>"}, "no word without a number"


def test_the_tokens_of_a_policy_in_messages_are_those_that_it_told() -> None:
    said = make(turn("hit", completion_tokens=7), turn("stand", completion_tokens=4), token_exact=False)
    said.completion_ids, said.mask = [], []
    numbers = rollout_metrics([said])
    assert (numbers["model_tokens"], numbers["environment_tokens"]) == (11.0, 0.0)
