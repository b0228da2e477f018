"""Hidden tests as texts of Python code: split so that each counts, and refused where they could not judge anything.

A text is a test. It passes if nothing is raised while it runs, and while each ``test_…`` function at its top does. The
tests of a class, unittest's or one named ``Test…``, are tests each.
"""

from __future__ import annotations

import ast
import hashlib
import warnings
from collections.abc import Iterator

from coding_env.sandbox.inside.reach import MODULE, names_in
from openenv_trl.errors import ConfigurationError

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_MAX_KNOWN = 20_000  # tests that episodes repeat, each as 32 bytes
_known: dict[bytes, str] = {}


def split_tests(source: str) -> list[str]:
    """Return one test for each ``test_…`` function or method that a module defines, each with all that is beside it.

    Args:
        source: The module. Without such functions it is one test.

    Raises:
        ConfigurationError: It is no Python.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError) as error:
        raise ConfigurationError(f"The tests are no Python: {error}.") from error
    functions = [node for node in tree.body if isinstance(node, _Function) and node.name.startswith("test_")]
    names = [node.name for node in functions]
    tests: list[str] = []
    for name in names:
        others = [
            node for node in tree.body if getattr(node, "name", "") not in names or getattr(node, "name", "") == name
        ]
        tests.append(ast.unparse(ast.Module(others, [])))
    beside = ast.unparse(ast.Module([node for node in tree.body if node not in functions], [])) if names else source
    return [*tests, *methods(beside)] or [source]


def methods(source: str) -> list[str]:
    """Return a test for each method ``test…`` of unittest's classes and of those named ``Test…``.

    Raises:
        SyntaxError: It is no Python.
    """
    tests: list[str] = []
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef):
            by_unittest = any("TestCase" in ast.unparse(base) for base in node.bases)
            if by_unittest or node.name.startswith("Test"):
                own = {each.name: each for each in node.body if isinstance(each, _Function)}
                call = _by_unittest if by_unittest else _by_hand
                tests += [f"{source}\n\n{call(node.name, name, own)}" for name in own if name.startswith("test")]
    return tests


def _by_unittest(case: str, method: str, own: dict[str, _Function]) -> str:
    del own
    return (
        f"import unittest as _unittest\n_result = _unittest.TestResult()\n{case}({method!r}).run(_result)\n"
        "assert _result.testsRun == 1 and _result.wasSuccessful() and not _result.skipped, "
        "(_result.errors + _result.failures)[:1]\n"
    )


def _by_hand(case: str, method: str, own: dict[str, _Function]) -> str:
    lines = [f"_case = {case}()"]
    for name in ("setup_class", "setup_method"):
        if name in own:  # which may take what it is set up for
            wants_more = name == "setup_method" and len(own[name].args.args) > 1
            lines.append(f"_case.{name}({f'_case.{method}' if wants_more else ''})")
    return "\n".join([*lines, f"_case.{method}()\n"])


def why_unusable(test: str) -> str:
    """Return why a test would pass or fail whatever the solution is; "" where it judges.

    What differs from test to test follows a colon.
    """
    key = hashlib.sha256(test.encode("utf-8", "surrogatepass")).digest()
    if key not in _known:
        if len(_known) >= _MAX_KNOWN:
            _known.clear()
        _known[key] = _fault(test)
    return _known[key]


def _fault(test: str) -> str:
    if not test.strip():
        return "is empty"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(test, "<test>", "exec", dont_inherit=True)
            tree, names = ast.parse(test), names_in(test)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return f"is no Python: {error}"
    functions = [node for node in tree.body if isinstance(node, _Function) and node.name.startswith("test_")]
    for function in functions:
        if isinstance(function, ast.AsyncFunctionDef):
            return f"has an async function, which nobody awaits: {function.name}"
        wanted = function.args.args[: len(function.args.args) - len(function.args.defaults)]
        if wanted:
            return f"has a function that wants arguments, which nobody gives: {function.name}({wanted[0].arg})"
    told = names.of_solution | _imported(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert) and isinstance(node.test, ast.Tuple) and node.test.elts:
            return f"asserts a tuple, which is always true: {ast.unparse(node)[:60]}"
        bases = node.bases if isinstance(node, ast.ClassDef) else ()
        if any(isinstance(base, ast.Name) and base.id in told for base in bases):
            return f"derives a class from one of the solution's, which is in another process: {ast.unparse(node)[:40]}"
    if not names.asks_it:
        return "uses nothing of the solution's"
    if not any(_may_fail(node) for node in _run(tree)):
        return "checks nothing: what it asserts or calls is in no test_… function, nor outside of functions"
    return ""


def _imported(tree: ast.AST) -> set[str]:
    return {
        name.asname or name.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == MODULE
        for name in node.names
    }


def _run(tree: ast.Module) -> Iterator[ast.stmt]:
    """The statements that are run: those at the top, and those of the test functions."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            yield from node.body
        elif isinstance(node, ast.If) and "__name__" in ast.unparse(node.test):
            continue  # a test is no program
        elif not isinstance(node, (*_Function.__args__, ast.ClassDef)):
            yield node


def _may_fail(statement: ast.stmt) -> bool:
    return any(isinstance(node, (ast.Assert, ast.Raise, ast.Call, ast.Subscript)) for node in ast.walk(statement))
