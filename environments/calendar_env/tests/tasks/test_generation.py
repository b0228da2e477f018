"""Tasks are many, differ, and are the same wherever they are made."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from calendar_env.tasks import FAMILIES, LEVELS, generate
from calendar_env.tasks.company import CLOCK_CHANGES
from calendar_env.tasks.playing import prepared

PROGRAM = """
import hashlib, json
from calendar_env.tasks import FAMILIES, LEVELS, generate
from calendar_env.tasks.playing import prepared
for number, family in enumerate(FAMILIES):
    task = generate(family, LEVELS[number % 3], number)
    dump = json.dumps([task.prompt, task.now.isoformat(), prepared(task).dump()], sort_keys=True)
    print(hashlib.sha256(dump.encode()).hexdigest())
"""


def test_equal_seeds_make_equal_tasks_in_other_processes() -> None:
    def printed(hash_seed: str) -> list[str]:
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        run = subprocess.run(
            [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True
        )
        return run.stdout.split()

    here: list[str] = []
    for number, family in enumerate(FAMILIES):
        task = generate(family, LEVELS[number % 3], number)
        dump = json.dumps([task.prompt, task.now.isoformat(), prepared(task).dump()], sort_keys=True)
        here.append(hashlib.sha256(dump.encode()).hexdigest())
    assert printed("1") == here
    assert len(set(here)) == len(FAMILIES)


@pytest.mark.parametrize("family", FAMILIES)
def test_tasks_of_a_family_differ(family: str) -> None:
    tasks = [generate(family, level, seed) for level in LEVELS for seed in range(100, 108)]
    requests = [task.prompt.split("\n\n", 1)[1] for task in tasks]
    assert len(set(requests)) == len(requests)
    assert len({task.prompt for task in tasks}) == len(tasks)
    assert len({task.acting_user for task in tasks}) >= 15
    assert len({task.now.date() for task in tasks}) >= 8


def test_answers_differ() -> None:
    said = set()
    for seed in range(12):
        task = generate("answer_question", "easy", seed)
        (_, part), *_ = task._goal(None)  # type: ignore[arg-type]
        said.add(part.value)
    assert len(said) >= 6


def test_many_tasks_play_round_a_change_of_clocks() -> None:
    days = [generate("create_event", "easy", seed).now.date() for seed in range(60)]
    near = [day for day in days if any(0 <= (change - day).days <= 21 for change in CLOCK_CHANGES)]
    assert len(near) >= 20


def test_companies_have_people_in_many_zones() -> None:
    zones = {str(generate("create_event", "easy", seed).now.tzinfo) for seed in range(60)}
    assert zones >= {"Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Sydney"}


def test_unknown_names_are_refused_with_those_there_are() -> None:
    with pytest.raises(ValueError, match="create_event"):
        generate("make_coffee", "easy", 0)
    with pytest.raises(ValueError, match="medium"):
        generate("create_event", "impossible", 0)


def test_every_family_has_a_module_and_a_solver() -> None:
    from calendar_env.tasks.solvers import SOLVERS

    folder = Path(__file__).resolve().parents[2] / "tasks" / "families"
    modules = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    assert modules == set(FAMILIES) == set(SOLVERS)
    assert len(FAMILIES) == 18
