"""Code mode: an agent acts by Python code that calls an environment's tools as functions.

Such code can do whatever the process can that it runs in. So it only runs where the environment has a process of its
own, which its server kills with a step that passes its deadline: it cannot stop the server, nor reach another session.
It is no protection of the machine: what the process may read, write and reach is for its container to limit.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from openenv_trl.blocking import wait_for
from openenv_trl.errors import ConfigurationError
from openenv_trl.tools.callable_tool import CallableTool
from openenv_trl.tools.tool_server import OfferedTool
from openenv_trl.types import Observation


def callables_of(tools: dict[str, OfferedTool]) -> dict[str, Callable[..., Any]]:
    """Return tools as functions for synchronous code; those that are asynchronous are waited for."""
    return {name: _callable(name, tool) for name, tool in tools.items()}


def run_code(code: str, callables: dict[str, Callable[..., Any]], *, execution: str, owner: str) -> Observation:
    """Run an agent's code in this process.

    Args:
        code: Python. What it leaves in the variable ``result`` is its result.
        callables: The functions that it may call by name.
        execution: Where the environment runs, as its server said.
        owner: The environment class's name, for the error.

    Returns:
        An observation with the result, or the error's text, in its metadata.

    Raises:
        ConfigurationError: The environment has no process of its own.
    """
    if execution != "process":
        raise ConfigurationError(
            f"{owner} cannot run code here: it would run inside the server, with all that the server may do. "
            'Set EXECUTION = "process" on the environment class, so that each session has a process of its own, '
            "which is killed with a step that passes its deadline."
        )
    names: dict[str, Any] = dict(callables)
    try:
        exec(compile(code, "<code of the agent>", "exec"), names)
    except (Exception, SystemExit, KeyboardInterrupt, GeneratorExit) as error:  # boundary: the agent's code
        return Observation(reward=0.0, metadata={"error": f"{type(error).__name__}: {error}"})
    return Observation(reward=0.0, metadata={"result": names.get("result")})


def _callable(name: str, tool: OfferedTool) -> Callable[..., Any]:
    if not isinstance(tool, CallableTool):

        def call(**arguments: Any) -> Any:
            return wait_for(tool.call(arguments), what=f"The tool '{name}'")["data"]

        return call
    if not inspect.iscoroutinefunction(tool.function):
        return tool.function

    @functools.wraps(tool.function)
    def wait(*args: Any, **kwargs: Any) -> Any:
        return wait_for(tool.function(*args, **kwargs), what=f"The tool '{name}'")

    return wait
