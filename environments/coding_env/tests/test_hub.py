"""Rows of the common data sets become tasks that a right solution passes and a wrong one does not."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from coding_env.hub import SHAPES, TestLimits, built_in_rows, load_tasks, task_rows
from coding_env.sandbox.launcher import shared_sandbox
from coding_env.sandbox.limits import Limits
from coding_env.server.coding_environment import CodingEnvironment
from coding_env.server.grading import grade
from coding_env.server.tasks import built_in_tasks

from openenv_trl.errors import ConfigurationError

pytestmark = pytest.mark.anyio

ADD = "def add(a, b):\n    return a + b\n"
PROGRAM = "import sys\nfor line in sys.stdin:\n    print(sum(map(int, line.split())))\n"
METHOD = "class Solution:\n    def add(self, a, b):\n        return a + b\n"
CASES = [
    {"type": "function_call", "fn_name": "add", "input": [2, 3], "output": 5},
    {"type": "function_call", "fn_name": "add", "input": [0, 0], "output": 0},
]

# Each with a right solution, the number of its tests, and how many of them a solution passes that always says 5.
ROWS: dict[str, tuple[dict[str, Any], str, int, int]] = {
    "humaneval": (
        {
            "task_id": "Mine/0",
            "prompt": 'def add(a, b):\n    """The sum."""\n',
            "entry_point": "add",
            "canonical_solution": "    return a + b\n",
            "test": "METADATA = {}\n\ndef check(candidate):\n    two = 2\n    assert candidate(two, 3) == 5\n"
            "    for n in range(3):\n        assert candidate(n, n) == 2 * n\n    assert candidate('a', 'b') == 'ab'\n",
        },
        ADD,
        3,
        1,
    ),
    "bigcodebench": (
        {
            "task_id": "Mine/1",
            "instruct_prompt": "Add two numbers.",
            "entry_point": "add",
            "code_prompt": "def add(a, b):\n",
            "canonical_solution": "    return a + b\n",
            "test": "import unittest\nclass TestCases(unittest.TestCase):\n    def setUp(self):\n        self.two = 2\n"
            "    def test_small(self):\n        self.assertEqual(add(self.two, 3), 5)\n"
            "    def test_zero(self):\n        self.assertEqual(add(0, 0), 0)\n",
        },
        ADD,
        2,
        1,
    ),
    "mbpp": (
        {
            "task_id": 7,
            "text": "Write a function that adds.",
            "code": ADD,
            "test_setup_code": "two = 2",
            "test_list": ["assert add(two, 3) == 5", "assert add(1, 1) == two"],
        },
        ADD,
        2,
        1,
    ),
    "apps": (
        {
            "problem_id": 3,
            "question": "Print the sum of each line.",
            "solutions": json.dumps([PROGRAM]),
            "input_output": json.dumps({"inputs": ["2 3\n", "1 1\n2 2\n"], "outputs": ["5\n", "2 \n4\n\n"]}),
            "starter_code": "",
        },
        PROGRAM,
        2,
        1,
    ),
    "apps, a function": (
        {
            "question": "Add.",
            "input_output": json.dumps({"fn_name": "add", "inputs": [[2, 3], [1, 1]], "outputs": [[5], 2]}),
            "starter_code": "class Solution:\n    def add(self, a, b):\n",
        },
        METHOD,
        2,
        1,
    ),
    "code_contests": (
        {
            "name": "sums",
            "description": "Print the sum of each line.",
            "public_tests": {"input": ["2 3\n"], "output": ["5\n"]},
            "private_tests": {"input": ["9 1\n"], "output": ["10\n"]},
            "generated_tests": {"input": [], "output": []},
        },
        PROGRAM,
        2,
        1,
    ),
    "livecodebench": (
        {
            "question_id": "abc",
            "question_content": "Add.",
            "starter_code": "class Solution:\n    def add(self, a, b):\n        ",
            "metadata": json.dumps({"func_name": "add"}),
            "public_test_cases": json.dumps([{"input": "2\n3", "output": "5", "testtype": "functional"}]),
            "private_test_cases": json.dumps([{"input": '"a"\n"b"', "output": '"ab"', "testtype": "functional"}]),
        },
        METHOD,
        2,
        1,
    ),
    "verifiable": (
        {"problem_id": "v", "prompt": "Add.", "verification_info": {"language": "python", "test_cases": CASES}},
        ADD,
        2,
        1,
    ),
    "ground_truth": (
        {
            "prompt": [{"role": "system", "content": "Think."}, {"role": "user", "content": "Print the sums."}],
            "reward_model": {"ground_truth": json.dumps({"inputs": ["2 3\n", ""], "outputs": ["5\n", ""]})},
        },
        PROGRAM,
        2,
        1,
    ),
    "deepcoder": (
        {"problem": "Print the sums.", "tests": json.dumps([{"type": "stdin", "input": "2 3", "output": "5"}] * 2)},
        PROGRAM,
        2,
        2,
    ),
    "kodcode": (
        {
            "question": "Add.",
            "solution": ADD,
            "test": "from solution import add\n\ndef test_five():\n    assert add(2, 3) == 5\n\n"
            "def test_zero():\n    assert add(0, 0) == 0\n",
            "test_info": [{"function_declaration": "def add(a, b):"}],
        },
        ADD,
        2,
        1,
    ),
    "own": ({"prompt": "Add.", "tests": ["assert add(2, 3) == 5", "assert add(1, 1) == 2"]}, ADD, 2, 1),
}
ALWAYS_FIVE = (
    "def add(a, b):\n    return 5\nclass Solution:\n    def add(self, a, b):\n        return 5\n"
    "if __name__ == '__main__':\n    print(5)\n"
)


async def passed(tests: list[str], code: str) -> int:
    sandbox = shared_sandbox(Limits())
    return (await grade(sandbox, {"solution.py": code}, tests, timeout_s=60, test_timeout_s=20)).passed


@pytest.mark.parametrize("name", ROWS)
async def test_a_row_of_each_shape_becomes_tests_that_judge(name: str) -> None:
    row, right, count, by_luck = ROWS[name]
    (task,) = task_rows([row])
    assert len(task["tests"]) == count
    assert await passed(task["tests"], right) == count
    assert await passed(task["tests"], ALWAYS_FIVE) == by_luck
    assert await passed(task["tests"], "") == (name == "ground_truth")  # whose second test expects no output
    assert list(task_rows([row], shape=name.split(",")[0])) == [task]
    if task["solution"]:
        assert await passed(task["tests"], task["solution"]) == count


def test_every_shape_is_tried_here() -> None:
    assert {name.split(",")[0] for name in ROWS} == set(SHAPES)


async def test_a_program_may_read_and_write_bytes_and_need_not_be_importable() -> None:
    (task,) = task_rows([ROWS["apps"][0]])
    by_bytes = (
        "import sys\nfor line in sys.stdin.buffer.read().splitlines():\n"
        "    sys.stdout.buffer.write(b'%d\\n' % sum(map(int, line.split())))\n"
    )
    by_input = (
        "while True:\n    try:\n        print(sum(map(int, input().split())))\n    except EOFError:\n        break\n"
    )
    needs_input = "first = input()\nprint(sum(map(int, first.split())))\n"
    assert await passed(task["tests"], by_bytes) == 2
    assert await passed(task["tests"], by_input) == 2
    assert await passed(task["tests"], needs_input) == 1


async def test_a_task_is_played_by_what_reset_takes() -> None:
    (task,) = task_rows([ROWS["mbpp"][0]])
    assert "assert add(two, 3) == 5" in task["prompt"][0]["content"]
    assert "add(1, 1)" not in task["prompt"][0]["content"], "one test is shown, and no other"
    environment = CodingEnvironment()
    try:
        await environment.reset_async(tests=task["tests"])
        result = await environment.run_tests(code=ADD)
        assert (result.reward, result.done) == (1.0, True)
    finally:
        environment.close()


def test_rows_that_cannot_be_used_are_counted_and_left_out(caplog: pytest.LogCaptureFixture) -> None:
    good = ROWS["apps"][0]
    bad = [{**good, "input_output": ""}, {**good, "input_output": "{}"}, {**good, "question": " "}]
    with caplog.at_level(logging.WARNING):
        assert len(task_rows([bad[0], good, *bad[1:]])) == 1
    assert "3 rows were left out" in caplog.text
    assert "1 x it has no tests" in caplog.text
    with pytest.raises(ConfigurationError, match="No row of the data set can be used"):
        task_rows(bad)


def test_columns_of_no_shape_are_told_with_what_is_known() -> None:
    with pytest.raises(
        ConfigurationError, match=r"columns answer, title, which is none .*humaneval: canonical_solution"
    ):
        task_rows([{"title": "x", "answer": "y"}])
    with pytest.raises(ConfigurationError, match="no column test_list, which shape='mbpp' needs"):
        task_rows([{"prompt": "x"}], shape="mbpp")
    with pytest.raises(ConfigurationError, match="no shape 'mbp'"):
        task_rows([{"prompt": "x"}], shape="mbp")


def test_packed_pickles_are_never_opened() -> None:
    row = {**ROWS["livecodebench"][0], "private_test_cases": "eJxrYJmqyAABGj2MwqUUABLmA7w="}
    assert len(task_rows([row])[0]["tests"]) == 1


def test_of_many_tests_some_of_all_sizes_are_kept_and_large_ones_are_not() -> None:
    tests = [f"assert add({n}, 0) == {n}" for n in range(100)]
    row = {"prompt": "Add.", "tests": [*tests, "assert add('" + "x" * 300_000 + "', '')"]}
    kept = task_rows([row], limits=TestLimits(max_tests=10))[0]["tests"]
    assert kept == tests[::10]
    with pytest.raises(ConfigurationError, match="too large"):
        task_rows([row], limits=TestLimits(max_test_bytes=5))


def test_files_are_loaded(tmp_path: Path) -> None:
    file = tmp_path / "mine.jsonl"
    file.write_text("".join(json.dumps(ROWS["mbpp"][0]) + "\n" for _ in range(3)), encoding="utf-8")
    assert len(load_tasks(str(file))) == 3
    assert len(load_tasks(str(file), most=2, instruction="")) == 2
    import datasets

    datasets.load_dataset("json", data_files=str(file), split="train").to_parquet(str(tmp_path / "mine.parquet"))
    assert load_tasks(str(tmp_path / "mine.parquet")) == load_tasks(str(file))
    with pytest.raises(ConfigurationError, match="There is no file"):
        load_tasks(str(tmp_path / "other.jsonl"))
    (tmp_path / "broken.jsonl").write_text("{", encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r"broken.jsonl cannot be loaded: .*; \w+: JSON parse error: "):
        load_tasks(str(tmp_path / "broken.jsonl"))


def test_the_command_writes_what_an_experiment_reads(tmp_path: Path) -> None:
    source, out = tmp_path / "mine.jsonl", tmp_path / "deep" / "tasks.jsonl"
    source.write_text(json.dumps(ROWS["humaneval"][0]) + "\n", encoding="utf-8")
    command = [sys.executable, "-m", "coding_env.hub"]
    done = subprocess.run([*command, str(source), "--out", str(out)], capture_output=True, text=True, check=True)
    assert done.stdout == f"1 tasks in {out}.\n"
    (row,) = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert sorted(row) == ["prompt", "source_id", "tests"]
    assert load_tasks(str(out))[0]["tests"] == row["tests"], "it can be read again"
    subprocess.run([*command, "--level", "warm-up", "--out", str(out)], check=True, capture_output=True)
    rows = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert rows == built_in_rows(["warm-up"])
    wrong = subprocess.run([*command, str(tmp_path / "no.csv"), "--out", str(out)], capture_output=True, text=True)
    assert (wrong.returncode, "There is no file" in wrong.stderr) == (2, True)


def test_a_place_that_cannot_be_written_is_told_before_anything_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    for out in (tmp_path / "file" / "tasks.jsonl", tmp_path):
        command = [sys.executable, "-m", "coding_env.hub", "no/such-data-set", "--out", str(out)]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 2
        assert done.stderr.startswith(f"--out {out} cannot be written: ")
        assert done.stderr.count("\n") == 1


def test_tests_that_judge_nothing_are_counted_and_left_out(caplog: pytest.LogCaptureFixture) -> None:
    good = "assert add(2, 3) == 5"
    rows = [{"prompt": "Add.", "tests": [good, "x = 1", "assert ("]}, {"prompt": "Add.", "tests": ["assert True"]}]
    with caplog.at_level(logging.WARNING):
        assert [row["tests"] for row in task_rows(rows)] == [[good]]
    assert "2 tests were left out: 1 x it uses nothing of the solution's; 1 x it is no Python" in caplog.text
    assert "1 rows were left out: 1 x each of its tests uses nothing of the solution's" in caplog.text


async def test_an_assertion_of_a_constant_is_no_test() -> None:
    row = ROWS["humaneval"][0]
    (task,) = task_rows([{**row, "test": row["test"] + "    assert True, 'This prints if it fails.'\n"}])
    assert len(task["tests"]) == 3


async def test_a_task_to_write_what_python_has_is_judged_by_the_solutions() -> None:
    right = "def sum(a, b):\n    return a + b\n"
    called = {"fn_name": "sum", "inputs": [[2, 3], [1, 1]], "outputs": [5, 2]}
    humaneval = {**ROWS["humaneval"][0], "entry_point": "sum", "canonical_solution": ""}
    rows = [{"question": "Add.", "input_output": json.dumps(called)}, humaneval]
    for row in rows:
        (task,) = task_rows([row])
        assert await passed(task["tests"], right) == len(task["tests"])
        assert await passed(task["tests"], "def sum(a, b):\n    return 5\n") == 1
        assert await passed(task["tests"], "") == 0


def test_built_in_rows_name_every_task_and_show_no_test() -> None:
    rows = built_in_rows()
    assert {row["task_id"] for row in rows} == set(built_in_tasks())
    assert all(row.keys() == {"prompt", "task_id"} for row in rows)
    with pytest.raises(ConfigurationError, match="no level 'hard'"):
        built_in_rows(["hard"])
