"""The tasks are what they say: the solution passes every hidden test, and each mutant fails one."""

from __future__ import annotations

import pytest
from coding_env.sandbox.launcher import shared_sandbox
from coding_env.sandbox.limits import Limits
from coding_env.server.grading import grade
from coding_env.server.tasks import LEVELS, CodingTask, built_in_tasks, find_task, own_task, split_tests

from openenv_trl.errors import ConfigurationError

pytestmark = pytest.mark.anyio
TASKS = built_in_tasks()


async def share_of(task: CodingTask, code: str, test_timeout_s: float = 4) -> float:
    sandbox = shared_sandbox(Limits())
    return (await grade(sandbox, {"solution.py": code}, task.tests, timeout_s=120, test_timeout_s=test_timeout_s)).share


@pytest.mark.parametrize("task", TASKS.values(), ids=lambda task: task.id)
async def test_the_solution_passes_and_each_mutant_fails(task: CodingTask) -> None:
    assert await share_of(task, task.solution, test_timeout_s=30) == 1.0
    assert len(task.mutants) >= 2
    for mutant in task.mutants:
        assert await share_of(task, mutant) < 1.0, mutant


@pytest.mark.parametrize("task", TASKS.values(), ids=lambda task: task.id)
async def test_doing_nothing_passes_no_test(task: CodingTask) -> None:
    assert await share_of(task, "") == 0.0


def test_there_are_tasks_of_every_level() -> None:
    assert len(TASKS) >= 40
    assert all(sum(task.level == level for task in TASKS.values()) >= 10 for level in LEVELS)


def test_a_seed_picks_the_task() -> None:
    assert find_task("random", 5) == find_task("random", 5)
    assert len({find_task("random", seed).id for seed in range(60)}) > 8
    assert {find_task("random:medium", seed).level for seed in range(20)} == {"medium"}
    with pytest.raises(ConfigurationError, match=r"no task 'clamb'.*clamp"):
        find_task("clamb", 0)
    with pytest.raises(ConfigurationError, match="random"):
        find_task("random:hard", 0)


def test_a_module_of_tests_is_split_by_its_functions() -> None:
    tests = split_tests(
        "import math\nHALF = 0.5\ndef test_a():\n    assert half(1) == HALF\ndef test_b():\n    assert math.pi\n"
    )
    assert len(tests) == 2
    assert all("HALF = 0.5" in test and "import math" in test for test in tests)
    assert "test_b" not in tests[0]
    assert own_task("halve", "assert half(1) == 0.5").tests == ["assert half(1) == 0.5"]
    for wrong in (None, [], [3]):
        with pytest.raises(ConfigurationError, match="tests"):
            own_task("halve", wrong)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigurationError, match="no Python"):
        own_task("halve", "def (")
