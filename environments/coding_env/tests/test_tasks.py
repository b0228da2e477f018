"""The tasks are what they say: the solution passes every hidden test, and each mutant fails one."""

from __future__ import annotations

import pytest
from coding_env.sandbox.inside.reach import names_in
from coding_env.sandbox.launcher import shared_sandbox
from coding_env.sandbox.limits import Limits
from coding_env.server.grading import grade
from coding_env.server.hidden_tests import why_unusable
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


# An object that says yes to whatever it is asked, is what it is compared with, and gives itself as every answer.
AGREEABLE = """
class Kind(type):
    def __instancecheck__(cls, other): return True
    __subclasscheck__ = __eq__ = lambda cls, other: True
    def __hash__(cls): return 0
    def __getattr__(cls, name): return cls()
class Yes(metaclass=Kind):
    __class__ = property(lambda self: list)
    def __init__(self, *given, **named): pass
    def __call__(self, *given, **named): return {answer}
    def __getattr__(self, name): return self
    def __eq__(self, other): return True
    __lt__ = __le__ = __gt__ = __ge__ = __contains__ = __eq__
    def __ne__(self, other): return False
    def __bool__(self): return True
    def __hash__(self): return 0
    def __iter__(self): return iter({items})
    def __next__(self): return self
    def __len__(self): return {length}
    def __getitem__(self, key): return {answer}
    def __setitem__(self, key, value): pass
    def __add__(self, other): return {operated}
    __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __mod__ = __rmod__ = __add__
    __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = __pow__ = __floordiv__ = __add__
    def __abs__(self): return 0
    __int__ = __float__ = __index__ = __neg__ = __abs__
    def __round__(self, digits=0): return 0
    def __str__(self): return ""
"""
AGREEABLE_WAYS = [
    {"answer": "self", "items": "[]", "length": "0", "operated": "self"},
    {"answer": "True", "items": "[self, self]", "length": "2", "operated": "other"},
    {"answer": "Yes()", "items": "[1, 2, 3]", "length": "3", "operated": "0"},
    {"answer": "given[0] if given else self", "items": "[(1, 1)]", "length": "1", "operated": "set()"},
]


@pytest.mark.parametrize("task", TASKS.values(), ids=lambda task: task.id)
async def test_an_object_that_agrees_with_everything_passes_no_test(task: CodingTask) -> None:
    names = set[str]().union(*(read.of_solution | read.its_task for read in map(names_in, task.tests)))
    assert names or all("run_program(" in test for test in task.tests)
    for number, way in enumerate(AGREEABLE_WAYS):
        code = AGREEABLE.replace("(self, key): return {answer}", "(self, key): return key")
        for word, meant in way.items():
            code = code.replace(f"{{{word}}}", meant)
        functions = code + "".join(f"def {name}(*given, **named): return Yes()\n" for name in names)
        classes = code + "".join(f"class {name}(Yes): pass\n" for name in names)
        for solution in (functions, classes) if number < 2 else (functions,):
            verdict = await grade(
                shared_sandbox(Limits()), {"solution.py": solution}, task.tests, timeout_s=60, test_timeout_s=4
            )
            assert not any("importing" in why for why in verdict.outcomes), verdict.outcomes
            passed = [test for test, why in zip(task.tests, verdict.outcomes, strict=True) if not why]
            assert passed == [], solution


@pytest.mark.parametrize("task", TASKS.values(), ids=lambda task: task.id)
def test_every_test_of_a_task_can_judge(task: CodingTask) -> None:
    assert {test: why for test in task.tests if (why := why_unusable(test))} == {}
    assert own_task(task.prompt, task.tests).tests == task.tests


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


UNUSABLE = {
    "": "is empty",
    " \n": "is empty",
    "x = 1": "uses nothing of the solution's",
    "assert True": "uses nothing",
    "assert all(x == y for x, y in zip(sorted([2, 1]), [1, 2]))": "uses nothing",
    "assert (": "is no Python",
    "def check():\n    assert half(1) == 0.5": "checks nothing",
    "def test_it():\n    half": "checks nothing",
    "if __name__ == '__main__':\n    assert half(1) == 0.5": "checks nothing",
    "async def test_it():\n    assert half(1) == 0.5": "an async function, which nobody awaits: test_it",
    "def test_it(one):\n    assert half(one) == 0.5": r"wants arguments, which nobody gives: test_it\(one\)",
    "assert (half(1) == 0.5, 'half')": "a tuple, which is always true",
    "class Mine(Half):\n    pass\nassert Mine().get() == 1": "derives a class",
}


@pytest.mark.parametrize("test", UNUSABLE)
def test_a_test_that_judges_nothing_is_refused_by_its_number(test: str) -> None:
    with pytest.raises(ConfigurationError, match=f"Test 2 of 2 .*{UNUSABLE[test]}"):
        own_task("halve", ["assert half(2) == 1", test])
    if "def (" not in test and test != "assert (":
        with pytest.raises(ConfigurationError, match=f"Test 1 of 1 .*{UNUSABLE[test]}|at least 1 item"):
            own_task("halve", test)


@pytest.mark.parametrize(
    "source",
    [
        "class TestHalf:\n    def setup_method(self, method):\n        self.one = 1\n"
        "    def test_one(self):\n        assert half(self.one) == 0.5\n"
        "    def test_two(self):\n        assert half(2) == self.one\n",
        "import unittest\nclass Halves(unittest.TestCase):\n    def setUp(self):\n        self.one = 1\n"
        "    def test_one(self):\n        self.assertEqual(half(self.one), 0.5)\n"
        "    def test_two(self):\n        self.assertEqual(half(2), self.one)\n"
        "if __name__ == '__main__':\n    unittest.main()\n",
        "class TestOne:\n    def test_it(self):\n        assert half(1) == 0.5\n"
        "def test_two():\n    assert half(2) == 1\n",
    ],
    ids=["by name", "unittest", "beside a function"],
)
async def test_each_method_of_a_class_of_tests_is_a_test(source: str) -> None:
    task = own_task("halve", source)
    assert len(task.tests) == 2
    assert await share_of(task, "def half(n):\n    return n / 2\n") == 1.0
    assert await share_of(task, "def half(n):\n    return 1\n") == 0.5
    assert await share_of(task, "def half(n):\n    return 3\n") == 0.0
    if "def test_two():" not in source:
        assert own_task("halve", [source]).tests == task.tests
