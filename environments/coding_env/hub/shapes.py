"""The common shapes of programming data sets, told apart by their columns, and what a row of each becomes.

Source: the data cards of openai/openai_humaneval, google-research-datasets/mbpp, codeparrot/apps, BAAI/TACO,
deepmind/code_contests, livecodebench/code_generation_lite, open-r1/verifiable-coding-problems-python,
agentica-org/DeepCoder-Preview-Dataset, KodCode/KodCode-V1 and bigcode/bigcodebench, for their columns.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from coding_env.hub.call_tests import called, programs
from coding_env.hub.split_tests import checked
from coding_env.server.hidden_tests import methods, split_tests
from openenv_trl.errors import ConfigurationError

Row = Mapping[str, Any]


class UnusableRowError(ValueError):
    """A row of which no task can be made."""


@dataclass(frozen=True)
class HubTask:
    """What a row becomes.

    Attributes:
        words: What is asked for.
        tests: The hidden tests.
        name: Its name in the data set; "" where it has none.
        solution: A solution that the data set gives; "" where it gives none.
    """

    words: str
    tests: list[str]
    name: str = ""
    solution: str = ""


@dataclass(frozen=True)
class Shape:
    """One kind of data set.

    Attributes:
        name: What it is called after.
        columns: The columns that tell it.
        task: Makes a task of a row; raises `UnusableRowError` where none can be made.
    """

    name: str
    columns: frozenset[str]
    task: Callable[[Row], HubTask]


def shape_of(row: Row, name: str | None, what: str) -> Shape:
    """The shape of a data set.

    Args:
        row: One of its rows.
        name: The name of its shape, where the user says it.
        what: What errors call it.

    Raises:
        ConfigurationError: There is no such shape, or the columns have none.
    """
    if name is not None:
        if name not in SHAPES:
            raise ConfigurationError(f"There is no shape {name!r}. There are: {', '.join(SHAPES)}.")
        missing = sorted(SHAPES[name].columns - row.keys())
        if missing:
            raise ConfigurationError(f"{what} has no column {', '.join(missing)}, which shape={name!r} needs.")
        return SHAPES[name]
    for shape in SHAPES.values():
        if shape.columns <= row.keys():
            return shape
    known = "; ".join(f"{shape.name}: {', '.join(sorted(shape.columns))}" for shape in SHAPES.values())
    raise ConfigurationError(
        f"{what} has the columns {', '.join(sorted(row))}, which is none of the shapes known ({known}). Rename columns "
        "or make rows with 'prompt' and 'tests' yourself: see the README of coding_env."
    )


def _humaneval(row: Row) -> HubTask:
    stub, name = _text(row, "prompt"), _text(row, "entry_point")
    words = f"Complete this function, and hand in all of it with its imports:\n\n```python\n{stub.rstrip()}\n```"
    tests = _of_source(lambda: checked(_text(row, "test"), name))
    return HubTask(words, tests, str(row.get("task_id", "")), stub + _text(row, "canonical_solution", missing=""))


def _mbpp(row: Row) -> HubTask:
    words = _text(row, "text", "prompt")
    listed = [str(test) for test in _list(row["test_list"])]
    if not listed:
        raise UnusableRowError("it has no tests")
    imports = row.get("test_imports")
    setup = "\n".join(map(str, _list(imports))) if imports else str(row.get("test_setup_code") or "")
    tests = [f"{setup}\n{test}" if setup else test for test in listed]
    # The words alone do not name the function: the data set's authors show the first test.
    words = f"{words}\n\nThis must hold, among others:\n\n```python\n{listed[0]}\n```"
    return HubTask(words, tests, str(row.get("task_id", "")), _text(row, "code", missing=""))


def _input_output(row: Row) -> HubTask:
    """APPS and TACO: ``input_output`` is JSON."""
    told = _json(row["input_output"])
    if not isinstance(told, Mapping):
        raise UnusableRowError("its input_output is no object")
    told = cast("Mapping[str, Any]", told)
    solutions = _json(row.get("solutions") or "[]", otherwise=[])
    name = str(row.get("problem_id", row.get("id", "")))
    task = _of_pairs(_text(row, "question"), str(row.get("starter_code") or ""), told, name)
    return HubTask(task.words, task.tests, name, str(solutions[0]) if solutions else "")


def _contests(row: Row) -> HubTask:
    """DeepMind's CodeContests: columns of inputs and outputs."""
    inputs: list[str] = []
    outputs: list[str] = []
    for column in ("public_tests", "private_tests", "generated_tests"):
        told = cast("Mapping[str, Any]", row.get(column) or {})
        inputs += map(str, _list(told.get("input", [])))
        outputs += map(str, _list(told.get("output", [])))
    name = str(row.get("name", ""))
    return _of_pairs(_text(row, "description"), "", {"inputs": inputs, "outputs": outputs}, name)


def _test_cases(row: Row) -> HubTask:
    """LiveCodeBench: lists of cases as JSON. Private ones that are packed as pickles are not opened."""
    cases = _list(_json(row["public_test_cases"]))
    private = row.get("private_test_cases")
    if private:
        cases += _list(_json(private, otherwise=[]))
    told = _json(row.get("metadata") or "{}", otherwise={})
    function = cast("Mapping[str, Any]", told).get("func_name") if isinstance(told, Mapping) else None
    name = str(row.get("question_id", ""))
    return _of_cases(_text(row, "question_content"), str(row.get("starter_code") or ""), cases, function, name)


def _verification(row: Row) -> HubTask:
    """Open-R1: ``verification_info`` with test cases."""
    told = row["verification_info"]
    told = _json(told) if isinstance(told, str) else told
    info = cast("Mapping[str, Any]", told)
    if str(info.get("language", "python")).lower() != "python":
        raise UnusableRowError("it is not about Python")
    words, name = _text(row, "prompt", "problem", "problem_statement"), str(row.get("problem_id", ""))
    return _of_cases(words, "", _list(info.get("test_cases", [])), None, name)


def _ground_truth(row: Row) -> HubTask:
    """Eurus and PRIME: ``reward_model.ground_truth`` with inputs and outputs as JSON; the prompt is a conversation."""
    told = cast("Mapping[str, Any]", row["reward_model"]).get("ground_truth", "")
    pairs = _json(told)
    if not isinstance(pairs, Mapping) or "inputs" not in pairs:
        raise UnusableRowError("its ground truth is no list of inputs and outputs")
    turns = [turn for turn in _list(row["prompt"]) if turn.get("role") == "user"]
    if not turns:
        raise UnusableRowError("its prompt has no message of the user's")
    return _of_pairs(str(turns[-1]["content"]), "", cast("Mapping[str, Any]", pairs), "")


def _deepcoder(row: Row) -> HubTask:
    """DeepCoder: ``tests`` as JSON, of either form."""
    told = _json(row["tests"])
    words, starter = _text(row, "problem"), str(row.get("starter_code") or "")
    solution = str((_list(row.get("solutions")) or [""])[0])
    if isinstance(told, Mapping):
        task = _of_pairs(words, starter, cast("Mapping[str, Any]", told), "")
    else:
        task = _of_cases(words, starter, _list(told), None, "")
    return HubTask(task.words, task.tests, "", solution)


def _module_of_tests(row: Row) -> HubTask:
    """KodCode: a module of ``test_…`` functions that imports the solution."""
    words, source = _text(row, "question"), _text(row, "test")
    stub = row.get("test_info")
    declared = [str(each["function_declaration"]) for each in _list(stub)] if stub else []
    if declared:
        words += "\n\n```python\n" + "\n".join(declared) + "\n```"
    tests = _of_source(lambda: split_tests(source))
    return HubTask(words, tests, str(row.get("question_id", "")), _text(row, "solution", missing=""))


def _unittest(row: Row) -> HubTask:
    """BigCodeBench: a class of unittest's."""
    words = _text(row, "instruct_prompt", "complete_prompt")
    tests = _of_source(lambda: methods(_text(row, "test")))
    stub = _text(row, "code_prompt", "complete_prompt", missing="")
    return HubTask(words, tests, str(row.get("task_id", "")), stub + _text(row, "canonical_solution", missing=""))


def _own(row: Row) -> HubTask:
    """This package's own form."""
    prompt, given = row["prompt"], row["tests"]
    words = prompt if isinstance(prompt, str) else str(_list(prompt)[-1]["content"])
    tests = _of_source(lambda: split_tests(given)) if isinstance(given, str) else [str(test) for test in _list(given)]
    return HubTask(words, tests, str(row.get("source_id", "")), str(row.get("solution") or ""))


def _of_pairs(words: str, starter: str, told: Mapping[str, Any], name: str) -> HubTask:
    inputs, outputs = _list(told.get("inputs", [])), _list(told.get("outputs", []))
    if not inputs or len(inputs) != len(outputs):
        raise UnusableRowError("it has no tests" if not inputs else "its inputs and outputs do not match")
    function = told.get("fn_name")
    if function:
        return HubTask(_with_starter(words, starter), called(str(function), inputs, outputs, starter), name)
    return HubTask(_as_program(words), programs([*map(str, inputs)], [*map(str, outputs)]), name)


def _of_cases(words: str, starter: str, cases: list[Any], function: str | None, name: str) -> HubTask:
    """Cases with ``input``, ``output`` and a type, of which some call a function and some run a program."""
    tests: list[str] = []
    calls = False
    for case in cast("list[Mapping[str, Any]]", cases):
        kind = str(case.get("type", case.get("testtype", "stdin")))
        target = case.get("fn_name") or function
        if kind in ("function_call", "functional") and target:
            calls = True
            arguments = case["input"]
            if isinstance(arguments, str):  # one JSON value a line
                arguments = [_json(line) for line in arguments.splitlines() if line.strip()]
            output = case["output"]
            output = _json(output, otherwise=output) if isinstance(output, str) else output
            tests += called(str(target), [arguments], [output], starter)
        elif kind in ("stdin", "stdin_stdout"):
            tests += programs([str(case["input"])], [str(case["output"])])
    return HubTask(_with_starter(words, starter) if calls else _as_program(words), tests, name)


def _as_program(words: str) -> str:
    return f"{words}\n\nWrite a program that reads its standard input and prints the answer."


def _with_starter(words: str, starter: str) -> str:
    return f"{words}\n\nBegin with:\n\n```python\n{starter.rstrip()}\n```" if starter.strip() else words


def _of_source(split: Callable[[], list[str]]) -> list[str]:
    try:
        return split()
    except (SyntaxError, ConfigurationError) as error:
        raise UnusableRowError("its tests are no Python") from error


def _text(row: Row, *columns: str, missing: str | None = None) -> str:
    for column in columns:
        if isinstance(row.get(column), str) and row[column].strip():
            return str(row[column])
    if missing is not None:
        return missing
    raise UnusableRowError(f"its {' or '.join(columns)} is empty")


_REQUIRED = object()


def _json(text: Any, otherwise: Any = _REQUIRED) -> Any:
    if not isinstance(text, str):
        return text
    try:
        return json.loads(text)
    except ValueError:
        if otherwise is _REQUIRED:
            raise UnusableRowError("what should be JSON is none") from None
        return otherwise


def _list(value: Any) -> list[Any]:
    """A list of what a data set may hold as a list, a tuple or an array."""
    if value is None or isinstance(value, (str, bytes, Mapping)):
        return []
    return list(value)


SHAPES: dict[str, Shape] = {
    shape.name: shape
    for shape in (
        Shape("humaneval", frozenset({"prompt", "test", "entry_point", "canonical_solution"}), _humaneval),
        Shape("bigcodebench", frozenset({"instruct_prompt", "test", "entry_point"}), _unittest),
        Shape("mbpp", frozenset({"test_list"}), _mbpp),
        Shape("apps", frozenset({"question", "input_output"}), _input_output),
        Shape("code_contests", frozenset({"description", "public_tests"}), _contests),
        Shape("livecodebench", frozenset({"question_content", "public_test_cases"}), _test_cases),
        Shape("verifiable", frozenset({"verification_info"}), _verification),
        Shape("ground_truth", frozenset({"prompt", "reward_model"}), _ground_truth),
        Shape("deepcoder", frozenset({"problem", "tests"}), _deepcoder),
        Shape("kodcode", frozenset({"question", "test", "solution"}), _module_of_tests),
        Shape("own", frozenset({"prompt", "tests"}), _own),
    )
}
"""The shapes by their names, in the order in which they are tried."""
