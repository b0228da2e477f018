"""Python's interactive prompt, for whole cells: names stay, and the value of a last expression is shown."""

from __future__ import annotations

import ast
import contextlib
import json
import linecache
import os
import sys
import traceback
import types
from typing import Any, TextIO

_MAX_FRAMES = 1000
_MAX_CHAIN = 100


class Console:
    """One interpreter's ``__main__`` with its standard streams."""

    def __init__(self) -> None:
        self.module = types.ModuleType("__main__")
        self.module.__dict__["__builtins__"] = __builtins__
        sys.modules["__main__"] = self.module
        sys.argv = [""]
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stdout = self._out = _stream(1)
        sys.stderr = self._err = _stream(2)
        sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr
        self._kept = os.dup(1), os.dup(2)
        self._cells = 0
        self._runs = False

    def interrupted(self, *_: object) -> None:
        """Take the signal that says that the time is up."""
        if self._runs:
            raise KeyboardInterrupt

    def run(self, code: str) -> int:
        """Run a cell and return its exit code: 0, or 1 after an exception that is told on standard error."""
        self._cells += 1
        name = f"<cell {self._cells}>"
        linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
        os.dup2(self._kept[0], 1)  # where a cell before closed them
        os.dup2(self._kept[1], 2)
        self._runs = True
        try:
            try:
                self._execute(code, name)
                return 0
            finally:
                self._runs = False
        except SystemExit as leaving:
            return _exit_code(leaving)
        except BaseException as error:  # boundary: code may raise anything
            self._tell(error)
            return 1

    def flush(self) -> None:
        """Send on what was written."""
        for stream in (sys.stdout, sys.stderr, self._out, self._err):
            with contextlib.suppress(BaseException):
                stream.flush()

    def _execute(self, code: str, name: str) -> None:
        tree = compile(code, name, "exec", ast.PyCF_ONLY_AST)  # as ast.parse, without a frame of its own
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        names = self.module.__dict__
        exec(compile(tree, name, "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), name, "eval"), names)
            if value is not None:
                print(shown(value))

    def _tell(self, error: BaseException) -> None:
        try:
            told = traceback.TracebackException.from_exception(error, limit=-_MAX_FRAMES)
            text = "".join(_without_own_frames(told).format())
        except BaseException:
            text = f"{type(error).__name__}\n"
        with contextlib.suppress(BaseException):
            self._err.write(text)


def _without_own_frames(told: traceback.TracebackException) -> traceback.TracebackException:
    each: traceback.TracebackException | None = told
    for _ in range(_MAX_CHAIN):
        if each is None:
            break
        each.stack[:] = [frame for frame in each.stack if frame.filename != __file__]
        each = each.__cause__ or each.__context__
    return told


def _stream(descriptor: int) -> TextIO:
    return open(descriptor, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False, newline="\n")


def shown(value: Any) -> str:
    """Return a value as an agent sees it: as JSON where it can be, and else by ``repr``."""
    try:
        return json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        return repr(value)


def _exit_code(leaving: SystemExit) -> int:
    code = leaving.code
    if code is None:
        return 0
    if isinstance(code, int):
        return int(code)
    with contextlib.suppress(BaseException):
        print(code, file=sys.stderr)
    return 1
