"""Tests of a data set that come as one piece, split so that each part of them counts."""

from __future__ import annotations

import ast


def checked(source: str, name: str) -> list[str]:
    """Split a module with a function ``check(candidate)``: a test for each of its assertions.

    Args:
        source: The module.
        name: The function of the solution that it checks.

    Raises:
        SyntaxError: It is no Python.
    """
    tree = ast.parse(source)
    check = next((node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "check"), None)
    call = f"\ncheck({name})\n"
    if check is None:
        return [source + call]
    asserting = [place for place, node in enumerate(check.body) if _asserts(node)]
    if len(asserting) < 2:
        return [source + call]
    tests: list[str] = []
    body = check.body
    for kept in asserting:
        # What is assigned before an assertion may be needed by it; what other assertions say is not.
        check.body = [node for place, node in enumerate(body[: kept + 1]) if place == kept or place not in asserting]
        tests.append(ast.unparse(ast.fix_missing_locations(tree)) + call)
    check.body = body
    return tests


def methods(source: str) -> list[str]:
    """Split a module with classes of unittest's: a test for each of their methods ``test…``.

    Args:
        source: The module.

    Raises:
        SyntaxError: It is no Python.
    """
    tests: list[str] = []
    for node in ast.parse(source).body:
        if not isinstance(node, ast.ClassDef) or not any("TestCase" in ast.unparse(base) for base in node.bases):
            continue
        for method in node.body:
            if isinstance(method, ast.FunctionDef) and method.name.startswith("test"):
                tests.append(
                    f"{source}\n\nimport unittest as _unittest\n_result = _unittest.TestResult()\n"
                    f"{node.name}({method.name!r}).run(_result)\n"
                    "assert _result.testsRun == 1 and _result.wasSuccessful() and not _result.skipped, "
                    "(_result.errors + _result.failures)[:1]\n"
                )
    return tests


def _asserts(node: ast.stmt) -> bool:
    return any(isinstance(each, ast.Assert) for each in ast.walk(node))
