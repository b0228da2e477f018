"""Rows for training and evaluation are what the environment's reset takes, and the scores' table is real."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from calendar_env import scores
from calendar_env.server.calendar_environment import CalendarEnvironment
from calendar_env.tasks import FAMILIES, LEVELS, dataset, generate


def test_rows_are_taken_by_reset_and_bring_the_task_with_the_first_observation() -> None:
    rows = dataset.rows(families=["find_slot", "hand_over"], levels=["easy", "hard"], seeds=[3])
    assert len(rows) == 4
    environment = CalendarEnvironment()
    for row in rows:
        reset = {name: value for name, value in row.items() if name != "prompt"}
        observation = environment.reset(seed=99, **reset)
        task = generate(row["task"], row["level"], row["task_seed"])
        assert observation.message == task.prompt
        assert environment.state.task_id == task.id
        assert row["prompt"][0]["role"] == "user"


def test_any_beginning_of_the_rows_is_varied() -> None:
    rows = dataset.rows(seeds=range(2))
    assert len(rows) == 2 * len(FAMILIES) * len(LEVELS)
    assert {row["task"] for row in rows[: 3 * len(FAMILIES)]} == set(FAMILIES)


def test_seeds_of_training_and_test_never_meet() -> None:
    assert not set(dataset.seeds_of("train", 1_000_000)) & set(dataset.seeds_of("test", 10))
    with pytest.raises(ValueError, match="train, test"):
        dataset.seeds_of("dev", 3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="million"):
        dataset.seeds_of("train", 1_000_001)
    with pytest.raises(ValueError, match="find_slot"):
        dataset.rows(families=["find_slots"])


def test_rows_are_written_as_json_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "tasks.jsonl"
    dataset.main([str(file), "--split", "test", "--seeds", "2", "--levels", "easy"])
    written = [json.loads(line) for line in file.read_text().splitlines()]
    assert written == dataset.rows(levels=["easy"], seeds=dataset.seeds_of("test", 2))
    assert f"{len(written)} rows" in capsys.readouterr().out


def test_the_table_of_scores_is_what_the_agents_got(capsys: pytest.CaptureFixture[str]) -> None:
    scores.main(["--seeds", "2", "--families", "share_calendar", "--levels", "medium"])
    header, _, line = capsys.readouterr().out.strip().splitlines()
    assert header == "| family | level | solver | careless | nothing | random | destructive |"
    family, level, solver, careless, nothing, random, destructive = [
        each.strip() for each in line.strip("|").split("|")
    ]
    assert (family, level, solver, nothing, destructive) == ("share_calendar", "medium", "1.00", "0.00", "-1.00")
    assert -1.0 <= float(random) < 1.0
    measured = scores.measure("share_calendar", "medium", range(2))
    flaws = [score for name, found in measured.values.items() if name not in scores.BASELINES for score in found]
    assert f"{sum(flaws) / len(flaws):.2f}" == careless
