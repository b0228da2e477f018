"""An episode: names and files stay, output is told, tests judge, and its end is its end."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import anyio
import pytest
from coding_env.models import CodeAction, CodeObservation
from coding_env.sandbox import exchange
from coding_env.server.coding_environment import CodingEnvironment
from coding_env.server.settings import EpisodeSettings, SandboxSettings

from openenv_trl.environment_checker import check_environment
from openenv_trl.errors import ActionValidationError, ConfigurationError, SessionStateError

pytestmark = pytest.mark.anyio
ADD = {"prompt": "Add two numbers.", "tests": ["assert add(1, 2) == 3", "assert add('a', 'b') == 'ab'"]}


@pytest.fixture
async def environment() -> AsyncGenerator[CodingEnvironment]:
    made = CodingEnvironment(EpisodeSettings(run_timeout_s=60))
    yield made
    made.close()


async def run(environment: CodingEnvironment, code: str, timeout_s: float | None = None) -> CodeObservation:
    return await environment.step_async(CodeAction(code=code), timeout_s=timeout_s)


async def test_names_stay_and_a_last_expression_is_shown(environment: CodingEnvironment) -> None:
    await environment.reset_async(seed=1)
    assert (await run(environment, "x = 20")).stdout == ""
    assert (await run(environment, "print('a')\nx + 1")).stdout == "a\n21\n"
    assert (await run(environment, "{'a': [1, None]}")).stdout == '{"a": [1, null]}\n'
    assert (await run(environment, "{1, 2}")).stdout == "{1, 2}\n"
    assert (await run(environment, "None")).stdout == ""
    assert environment.state.step_count == 5


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("1 / 0", "ZeroDivisionError"),
        ("def (", "SyntaxError"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("import nothing_of_the_kind", "ModuleNotFoundError"),
        ("input()", "EOFError"),
        ("x = 'a\0b'", "null"),
        ("import sys; sys.exit('bye')", "bye"),
    ],
)
async def test_an_error_is_told_with_its_line_and_ends_nothing(
    environment: CodingEnvironment, code: str, words: str
) -> None:
    await environment.reset_async()
    await run(environment, "kept = 7")
    observation = await run(environment, code)
    assert observation.exit_code == 1
    assert words in observation.stderr
    assert "coding_env" not in observation.stderr
    assert "/ast.py" not in observation.stderr
    assert environment.state.last_exit_code == 1
    assert (await run(environment, "kept")).stdout == "7\n"


async def test_what_other_processes_write_is_told_too(environment: CodingEnvironment) -> None:
    await environment.reset_async()
    code = "import os, sys\nos.write(1, b'raw')\nos.write(2, b'error')\nsys.exit(0)"
    observation = await run(environment, code)
    assert (observation.stdout, observation.stderr, observation.exit_code) == ("raw", "error", 0)


async def test_a_run_whose_time_is_up_keeps_names_and_files(
    environment: CodingEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "GRACE_S", 60.0)  # a busy machine may take longer to come to the interrupt
    await environment.reset_async(run_timeout_s=0.2)
    await run(environment, "kept = 7; open('f.txt', 'w').write('here'); None")
    observation = await run(environment, "while True: pass")
    assert observation.exit_code == 124
    assert "0.2 s" in observation.stderr
    assert (await environment.reset_async(run_timeout_s=60)).exit_code == 0
    await run(environment, "kept = 7")
    assert (await run(environment, "while True: pass", timeout_s=0.2)).exit_code == 124
    assert (await run(environment, "kept")).stdout == "7\n"


async def test_after_an_end_of_the_interpreter_files_are_there_and_names_are_not(
    environment: CodingEnvironment,
) -> None:
    await environment.reset_async()
    await environment.write_file("notes/a.txt", "one\n")
    await run(environment, "gone = 7")
    observation = await run(environment, "print('last words')\nimport os\nos._exit(3)")
    assert observation.exit_code == 137
    assert observation.stdout == "last words\n"
    assert "exit code 3" in observation.stderr
    assert "files are still there" in observation.stderr
    assert (await run(environment, "gone")).exit_code == 1
    assert (await environment.read_file("notes/a.txt")).stdout == "one\n"


async def test_an_end_between_two_runs_is_noticed(environment: CodingEnvironment) -> None:
    await environment.reset_async()
    await run(environment, "import threading, os, time\nthreading.Timer(0.05, os._exit, [5]).start()")
    with anyio.fail_after(60):
        while (await run(environment, "time.sleep(0.05)")).exit_code == 0:
            pass
    assert (await run(environment, "40 + 2")).stdout == "42\n"


async def test_files_are_written_read_and_listed(environment: CodingEnvironment) -> None:
    await environment.reset_async()
    assert (await environment.list_files()).stdout == "The workspace is empty.\n"
    assert "5 bytes" in (await environment.write_file("a/b.txt", "hello")).stdout
    assert (await run(environment, "open('a/b.txt').read()")).stdout == '"hello"\n'
    assert (await environment.list_files()).stdout == "5 a/b.txt\n"
    missing = await environment.read_file("c.txt")
    assert missing.exit_code == 1
    assert "c.txt" in missing.stderr
    await run(environment, "open('large', 'w').write('x' * 100_000); None")
    assert "cut after" in (await environment.read_file("large")).stdout


async def test_the_tests_judge_the_code_given_or_the_file_or_what_ran(environment: CodingEnvironment) -> None:
    opening = await environment.reset_async(max_attempts=5, **ADD)
    assert opening.stdout == "Add two numbers."
    half = await environment.run_tests("def add(a, b):\n    return a + b if a == 1 else None")
    assert (half.stdout, half.reward, half.done) == ("1 of 2 hidden tests passed.\n", 0.0, False)
    await run(environment, "def add(a, b): return 3")
    await run(environment, "1 / 0")
    assert (await environment.run_tests()).stdout == "1 of 2 hidden tests passed.\n"
    await environment.write_file("helper.py", "def plus(a, b): return a + b")
    await environment.write_file("solution.py", "from helper import plus as add")
    last = await environment.run_tests()
    assert (last.stdout, last.reward, last.done) == ("2 of 2 hidden tests passed.\n", 1.0, True)
    state = environment.state
    assert (state.attempts, state.tests_passed, state.tests_total) == (3, 2, 2)
    with pytest.raises(SessionStateError, match=r"over.*reset"):
        await run(environment, "1")


async def test_the_last_attempt_ends_the_episode_with_the_share_that_passed(environment: CodingEnvironment) -> None:
    await environment.reset_async(**ADD)
    observation = await environment.run_tests("def add(a, b): return 3")
    assert (observation.reward, observation.done) == (0.5, True)
    assert "truncated" not in observation.metadata


async def test_the_last_step_is_judged_too(environment: CodingEnvironment) -> None:
    await environment.reset_async(max_steps=1, **ADD)
    observation = await run(environment, "def add(a, b): return a + b")
    assert (observation.reward, observation.done) == (1.0, True)
    assert observation.metadata["truncated"] is True
    await environment.reset_async(max_steps=2)
    assert not (await run(environment, "1")).done
    assert (await run(environment, "1")).done


async def test_a_solution_that_cannot_be_imported_is_told_so(environment: CodingEnvironment) -> None:
    await environment.reset_async(**ADD)
    observation = await environment.run_tests("def add(a, b:\n")
    assert observation.reward == 0.0
    assert "SyntaxError" in observation.stdout
    assert "assert" not in observation.stdout


async def test_tests_reach_classes_exceptions_callbacks_and_programs(environment: CodingEnvironment) -> None:
    code = (
        "class Point:\n    def __init__(self, x): self.x = x\n    def __add__(self, o): return Point(self.x + o.x)\n"
        "    def __eq__(self, o): return self.x == o.x\n    def __len__(self): return self.x\n"
        "class Wrong(ValueError): pass\n"
        "def fail(): raise Wrong('so')\n"
        "def apply(f, xs): return [f(x) for x in xs]\n"
        "def count(): yield from range(3)\n"
        "if __name__ == '__main__': print(int(input()) * 2)\n"
    )
    tests = [
        "assert (Point(1) + Point(2)).x == 3 and Point(1) == Point(1) and Point(1) != Point(2) and len(Point(4)) == 4",
        "try:\n    fail()\nexcept ValueError as e:\n    assert str(e) == 'so' and type(e).__name__ == 'Wrong'\n",
        "assert apply(lambda x: x * 2, [1, 2]) == [2, 4]",
        "assert list(count()) == [0, 1, 2]",
        "assert run_program('21\\n') == '42\\n'",
        "from solution import apply as other\nassert other(str, (1,)) == ['1']",
        "point = Point(1)\npoint.x = 9\nassert point.x == 9",
        "def test_b():\n    assert list(count())[0] == 1\n",
    ]
    await environment.reset_async(prompt="", tests=tests)
    observation = await environment.run_tests(code)
    assert observation.stdout == "7 of 8 hidden tests passed.\n"


async def test_rules_reward_each_run_where_they_are_asked_for(environment: CodingEnvironment) -> None:
    await environment.reset_async(reward="rules")
    observation = await run(environment, "import os")
    assert observation.reward == pytest.approx(-0.9)
    assert observation.metadata == {"last_code": "import os", "safety_violation": r"import\s+os"}
    assert (await run(environment, "x = 1")).reward == pytest.approx(0.1)


async def test_a_seed_decides_what_is_random(environment: CodingEnvironment) -> None:
    async def drawn(seed: int) -> str:
        await environment.reset_async(seed=seed)
        return (await run(environment, "import random\nrandom.random(), {'b', 'a', 'c'}")).stdout

    assert await drawn(3) == await drawn(3)
    assert await drawn(3) != await drawn(4)
    first = await environment.reset_async(seed=8, task_id="random")
    state = environment.state
    assert (await environment.reset_async(seed=8, task_id=state.task_id)).stdout == first.stdout


async def test_a_seed_decides_the_same_in_another_server() -> None:
    """Each sandbox is a process of its own, in which hashes could have a seed of their own."""
    seen: list[str] = []
    for warm in (0, 1):  # so that it is not the same sandbox
        environment = CodingEnvironment(sandbox=SandboxSettings(warm_sessions=warm))
        await environment.reset_async(seed=3)
        code = "import random\nrandom.random(), hash('a'), {'b', 'a', 'c'}"
        seen.append((await run(environment, code)).stdout)
        environment.close()
    assert seen[0] == seen[1]


async def test_a_reset_leaves_nothing_of_the_last_episode(environment: CodingEnvironment) -> None:
    await environment.reset_async(**ADD)
    await run(environment, "import math, os; math.sqrt = None; kept = 1; open('f', 'w').close()")
    await environment.reset_async(seed=1)
    observation = await run(environment, "import math, os\n[math.sqrt(4), os.listdir('.'), 'kept' in globals()]")
    assert observation.stdout == "[2.0, [], false]\n"
    refused = await environment.run_tests()
    assert (refused.exit_code, refused.done) == (1, False)
    assert "no hidden tests" in refused.stderr


async def test_wrong_arguments_are_refused_with_what_is_allowed(environment: CodingEnvironment) -> None:
    wrong: list[dict[str, Any]] = [
        {"sed": 1}, {"seed": "1"}, {"task_id": "clamp", "tests": ["assert 1"]},
        {"prompt": "no tests"}, {"max_steps": 0}, {"reward": "luck"}, {"run_timeout_s": -1},
    ]  # fmt: skip
    await environment.reset_async(seed=5)
    for arguments in wrong:
        with pytest.raises(ConfigurationError, match=next(iter(arguments))):
            await environment.reset_async(**arguments)
    with pytest.raises(ConfigurationError, match="no task 'nothing'"):
        await environment.reset_async(task_id="nothing")
    assert environment.state.seed == 5
    with pytest.raises(ActionValidationError, match="rm"):
        environment.call_tool("rm", {})


async def test_a_step_before_reset_names_reset() -> None:
    with pytest.raises(SessionStateError, match="reset"):
        await run(CodingEnvironment(), "1")


async def test_a_cancelled_run_is_killed_and_the_session_goes_on(environment: CodingEnvironment) -> None:
    await environment.reset_async()
    with anyio.move_on_after(0.2) as scope:
        await run(environment, "while True: pass")
    assert scope.cancelled_caught
    assert (await run(environment, "40 + 2")).stdout == "42\n"


async def test_many_sessions_run_at_once_without_a_thread_each() -> None:
    import threading

    environments = [CodingEnvironment(EpisodeSettings(run_timeout_s=120)) for _ in range(100)]
    seen: list[str] = []

    async def play(number: int) -> None:
        await environments[number].reset_async(seed=number)
        await run(environments[number], f"mine = {number}")
        seen.append((await run(environments[number], "import time; time.sleep(0.5); mine")).stdout)

    before = set(threading.enumerate())
    async with anyio.create_task_group() as group:
        for number in range(100):
            group.start_soon(play, number)
    assert set(threading.enumerate()) <= before  # those of earlier tests may have ended
    assert sorted(seen) == sorted(f"{number}\n" for number in range(100))
    for environment in environments:
        environment.close()


def test_hooks_without_an_event_loop_do_the_same() -> None:
    environment = CodingEnvironment()
    environment.reset(seed=1, task_id="clamp")
    assert environment.step(CodeAction(code="40 + 2")).stdout == "42\n"
    environment.close()


@pytest.mark.parametrize("arguments", [{}, {"task_id": "clamp", "max_steps": 3}])
def test_it_keeps_the_contract_of_environments(arguments: dict[str, Any]) -> None:
    report = check_environment(CodingEnvironment, reset_arguments=arguments, steps=5)
    assert {finding.code for finding in report} <= {"seed-ignored"}, str(report)


@pytest.mark.skipif("sys.platform != 'linux'")
def test_a_sandbox_that_is_worth_too_little_does_not_start() -> None:
    settings = SandboxSettings(min_level="strong", disabled_layers=("files", "landlock"))  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigurationError, match=r"Missing: .*files.*CODING_MIN_LEVEL"):
        CodingEnvironment(sandbox=settings)


async def test_code_that_forks_and_comes_back_twice_is_answered_once(environment: CodingEnvironment) -> None:
    await environment.reset_async()
    await run(environment, "import os\npid = os.fork()\nif pid: os.waitpid(pid, 0)")
    assert (await run(environment, "40 + 2")).stdout == "42\n"


async def test_a_task_that_is_no_name_is_refused(environment: CodingEnvironment) -> None:
    with pytest.raises(ConfigurationError, match="task_id must be a task's name"):
        await environment.reset_async(task_id=3)  # pyright: ignore[reportArgumentType]


async def test_handing_in_nothing_is_told(environment: CodingEnvironment) -> None:
    await environment.reset_async(**ADD)
    observation = await environment.run_tests()
    assert observation.stdout.startswith("0 of 2 hidden tests passed.\nThere is no solution: no code was given")
    assert (observation.reward, observation.done) == (0.0, True)
