"""Tests of a data set that come as one piece, split so that each part of them counts."""

from __future__ import annotations

import ast
import builtins


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
    # A name that Python has too is the solution's only where the test says so.
    call = f"\nfrom solution import {name} as _candidate\ncheck(_candidate)\n" if hasattr(builtins, name) else ""
    call = call or f"\ncheck({name})\n"
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


def _asserts(node: ast.stmt) -> bool:
    """Whether a statement asserts anything but a constant, as ``assert True, "..."`` does."""
    return any(isinstance(each, ast.Assert) and not isinstance(each.test, ast.Constant) for each in ast.walk(node))
