"""One call of a tool, and whose fault it is when it fails: told by the kind of error, never by its words."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable
from typing import Any, cast

from pydantic import ValidationError

from openenv_trl.errors import ActionValidationError, OpenEnvError
from openenv_trl.tools.callable_tool import CallableTool
from openenv_trl.tools.tool_server import OfferedTool, ServerTool
from openenv_trl.wire.tools import CallToolResult, ToolErrorType


class ToolCallError(OpenEnvError):
    """A call that did not reach its tool, or did not end in time.

    Attributes:
        kind: Whose fault it was.
    """

    def __init__(self, kind: ToolErrorType, message: str) -> None:
        super().__init__(message, phase="step")
        self.kind = kind


def begin_call(tool: OfferedTool | None, name: str, arguments: dict[str, Any]) -> CallToolResult | Awaitable[Any]:
    """Call a tool: returns its result, or an awaitable of it where the tool is asynchronous.

    Raises:
        ToolCallError: No such tool, or arguments that do not fit it. Nothing was called.
        Exception: Whatever the tool raises.
    """
    if tool is None:
        raise ToolCallError(ToolErrorType.TOOL_NOT_FOUND, f"Unknown tool: '{name}'")
    try:
        checked = tool.check(arguments)
    except ValidationError as error:
        raise ToolCallError(ToolErrorType.INVALID_ARGS, str(error)) from error
    if not isinstance(tool, CallableTool) or checked is None:
        return cast("ServerTool", tool).call(arguments)
    args, kwargs = checked
    value = tool.function(*args, **kwargs)
    return _finished(tool, value) if inspect.isawaitable(value) else tool.result(value)


async def within(limit_s: float, name: str, outcome: Awaitable[Any]) -> Any:
    """Wait for an outcome, but not longer than the limit.

    Raises:
        ToolCallError: It took longer. The call was cancelled.
    """
    import anyio

    with anyio.move_on_after(limit_s):
        return await outcome
    raise ToolCallError(ToolErrorType.TIMEOUT, f"The tool '{name}' took longer than {limit_s:g} s and was cancelled")


def describe_failure(name: str, error: Exception, server: Any = None) -> tuple[ToolErrorType, str]:
    """Return whose fault a failed call was, and what its caller is told."""
    if isinstance(error, ToolCallError):
        return error.kind, str(error)
    if isinstance(error, ActionValidationError):
        return ToolErrorType.INVALID_ARGS, str(error)
    made_by = type(error).__module__.partition(".")[0]
    if made_by in ("fastmcp", "mcp"):
        # An error that a tool raised in order to be read, or one of the way to a server elsewhere.
        is_for_the_reader = type(error).__name__ in ("ToolError", "NotFoundError")
        kind = ToolErrorType.EXECUTION_ERROR if is_for_the_reader else ToolErrorType.TRANSPORT_ERROR
        return kind, str(error)
    if getattr(server, "_mask_error_details", False):
        return ToolErrorType.EXECUTION_ERROR, f"Error calling tool '{name}'"
    return ToolErrorType.EXECUTION_ERROR, f"Error calling tool '{name}': {error}"


async def _finished(tool: CallableTool, value: Awaitable[Any]) -> CallToolResult:
    return tool.result(await value)
