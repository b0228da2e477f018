"""The public package's interpreter, smolagents' ``LocalPythonExecutor``, as a console: no border, one more executor.

It walks the syntax tree and refuses what it does not know: most imports, files, names with two underscores. Whoever
gets round that is where the plain console begins: in the sandbox. What it answers is what the public environment
answers, but for two things: what was printed before an error is told, and the error comes without the interpreter's own
frames.

Source: ``openenv.core.tools.local_python_executor`` of the OpenEnv package, version 0.10.0, for the two tools and for
how output is put together.
"""

from __future__ import annotations

import contextlib
import json
import sys
import traceback
from collections.abc import Sequence
from typing import Any

from .console import Console, shown


def load(folders: Sequence[str], imports: Sequence[str]) -> str:
    """Import smolagents, once, before anything is forked; nothing else is found in the folders afterwards.

    Args:
        folders: Where it and what it needs are looked for.
        imports: Modules that code may import, beside those that smolagents allows by itself.

    Returns:
        Why it cannot be used; "" where it can.
    """
    before = list(sys.path)
    sys.path += [folder for folder in folders if folder not in before]
    try:
        _executor(imports)
    except Exception as error:  # boundary: packages that cannot be imported fail in many ways
        return f"{type(error).__name__}: {error}"
    finally:
        sys.path[:] = before
    return ""


class SmolagentsConsole(Console):
    """A console whose cells smolagents interprets.

    Args:
        imports: As for `load`.
    """

    def __init__(self, imports: Sequence[str]) -> None:
        super().__init__()
        self._executor = _executor(imports)

    def _execute(self, code: str, name: str) -> None:
        del name
        state: dict[str, Any] = self._executor.state
        state.pop("_print_outputs", None)  # of the cell before, should this one not be parsed
        try:
            result = self._executor(code)
        except BaseException:
            self._out.write(str(state.get("_print_outputs", "")))
            raise
        parts = [str(result.logs)] if result.logs else []
        if result.output is not None:
            parts.append(shown(result.output))
        self._out.write("\n".join(parts))

    def _tell(self, error: BaseException) -> None:
        with contextlib.suppress(BaseException):
            self._err.write("".join(traceback.format_exception_only(error)))


def _executor(imports: Sequence[str]) -> Any:
    from smolagents.local_python_executor import LocalPythonExecutor

    # Without its own time limit, which is a thread that nothing can end: the sandbox has one that ends it.
    executor: Any = LocalPythonExecutor(list(imports), timeout_seconds=None)
    executor.send_tools({"format_exc": traceback.format_exc, "safe_json_dumps": _safe_json})
    return executor


def _safe_json(value: Any) -> str:
    return json.dumps(value, default=repr)
