"""The names that a test has: its own, Python's, and the solution's where they cannot be taken for either.

What a name means is told by the test's text alone. Otherwise a solution that has an ``abs``, an ``isinstance`` or a
``class math`` of its own would decide what passes.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import importlib
import symtable
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

MODULE = "solution"
_PACKAGES = {name: name for name in sorted(sys.stdlib_module_names)} | {
    **{name: name for name in ("numpy", "pandas", "pytest", "scipy")},
    "np": "numpy",
    "pd": "pandas",
}
_EVERYWHERE = frozenset({"__name__", "__builtins__", "__file__", "__doc__"})


RUN_PROGRAM = "run_program"
OWN_NAMES = frozenset({RUN_PROGRAM, "as_data", "as_told"})
"""Names that every test has, which no solution replaces."""


@dataclass(frozen=True)
class Names:
    """What the names in a test mean.

    Attributes:
        modules: Modules of the library, or packages, that it uses and does not import.
        of_solution: Names that only the solution can have.
        its_task: Names of Python's that are the solution's here, as in a task to write ``sum``.
        asks_it: Whether it uses the solution at all.
    """

    modules: frozenset[str]
    of_solution: frozenset[str]
    its_task: frozenset[str]
    asks_it: bool


def names_in(source: str) -> Names:
    """Read a test.

    A name that Python has too means the solution's only where the test uses no other of Python's functions, and no
    other name that it does not define.

    Raises:
        SyntaxError: It is no Python.
    """
    tree = ast.parse(source)
    free = frozenset(_free_names(symtable.symtable(source, "<test>", "exec")))
    modules = frozenset(name for name in free & _PACKAGES.keys() if _is_module(tree, name))
    asked = frozenset(name for name in free if _is_function_of_python(name))
    unknown = free - modules - OWN_NAMES - _EVERYWHERE
    others = frozenset(name for name in unknown if not hasattr(builtins, name))
    told = bool(others) or RUN_PROGRAM in free or _imports_it(tree)
    its_task = asked if len(asked) == 1 and not told else frozenset[str]()
    return Names(modules, others, its_task, told or bool(its_task))


def in_reach(source: str, names: dict[str, Any]) -> dict[str, Any]:
    """Return the names that a test starts with, beside Python's and those of `OWN_NAMES`.

    Args:
        source: The test.
        names: The solution's.

    Raises:
        SyntaxError: The test is no Python.
        LookupError: It uses nothing of the solution's.
    """
    told = names_in(source)
    if not told.asks_it:
        raise LookupError("the test uses nothing of the solution's")
    found = {
        name: value
        for name, value in names.items()
        if name not in told.modules and (not hasattr(builtins, name) or name in told.its_task)
    }
    for name in told.modules:
        with contextlib.suppress(ImportError):  # then there is no such name
            found[name] = importlib.import_module(_PACKAGES[name])
    return found


def _free_names(table: symtable.SymbolTable) -> Iterator[str]:
    """Names that a module reads and does not itself define."""
    defined = {symbol.get_name() for symbol in table.get_symbols() if symbol.is_assigned() or symbol.is_imported()}
    tables = [table]
    read: set[str] = set()
    while tables:
        each = tables.pop()
        tables += each.get_children()
        for symbol in each.get_symbols():
            if symbol.is_declared_global() and symbol.is_assigned():
                defined.add(symbol.get_name())
            elif symbol.is_referenced() and (each is table or symbol.is_global()):
                read.add(symbol.get_name())
    yield from read - defined


def _is_function_of_python(name: str) -> bool:
    value = getattr(builtins, name, None)
    return callable(value) and not (isinstance(value, type) and issubclass(value, BaseException))


def _is_module(tree: ast.AST, name: str) -> bool:
    """Whether a name is used for what lies in it, and never itself: a task may be to write ``bisect``."""
    uses = sum(isinstance(node, ast.Name) and node.id == name for node in ast.walk(tree))
    within = sum(
        isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == name
        for node in ast.walk(tree)
    )
    return uses == within


def _imports_it(tree: ast.AST) -> bool:
    """Whether a test imports the solution in any way but by a star, and so has other words for its names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import) and any(each.name.split(".")[0] == MODULE for each in node.names):
            return True
        if isinstance(node, ast.ImportFrom) and node.module == MODULE and node.names[0].name != "*":
            return True
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and MODULE in node.value:
            return True  # importlib.import_module, __import__, sys.modules
    return False
