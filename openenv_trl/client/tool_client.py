"""A client for environments whose actions are calls of tools.

Promises: tools are listed and called on the session's own connection, so that nothing is left on the server when it
ends; a failure is an error and never an empty list; an argument may have any name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, TypeVar, cast

from pydantic import BaseModel, ConfigDict

from openenv_trl.client.env_client import EnvClient
from openenv_trl.errors import ConfigurationError, ToolCallError
from openenv_trl.types import CallToolAction, ListToolsAction, Observation, State, StepResult, Tool
from openenv_trl.wire.faults import is_configuration
from openenv_trl.wire.rpc import RpcErrorCode, RpcFailure, parse_rpc_response, rpc_request
from openenv_trl.wire.tools import CallToolObservation, ListToolsObservation, ToolError, ToolErrorType, tool_of_mcp

ActT = TypeVar("ActT")

_BESIDE = ("done", "reward", "metadata")


class GenericMCPObservation(Observation):
    """An observation that is neither a list of tools nor a tool's result; the environment's fields are attributes."""

    model_config = ConfigDict(extra="allow")


class MCPClientBase(EnvClient[ActT, Observation, State], Generic[ActT]):
    """What clients of environments with tools share. The arguments are in the public package's order.

    Args:
        base_url: The server's address.
        connect_timeout_s: As `EnvClient`.
        message_timeout_s: As `EnvClient`; also for a tool's result.
        websocket_ping_interval_s: As `EnvClient`.
        websocket_ping_timeout_s: As `EnvClient`.
        provider: As `EnvClient`.
        mode: "production", or nothing.
        max_message_size_mb: As `EnvClient`.
        headers: As `EnvClient`.
        further: What `EnvClient` takes by name only.

    Raises:
        ConfigurationError: As `EnvClient`; or the mode is "simulation".
    """

    def __init__(
        self,
        base_url: str | None = None,
        connect_timeout_s: float = 10.0,
        message_timeout_s: float = 60.0,
        websocket_ping_interval_s: float | None = 20.0,
        websocket_ping_timeout_s: float | None = 20.0,
        provider: Any = None,
        mode: str | None = None,
        max_message_size_mb: float = 100.0,
        headers: Mapping[str, str] | None = None,
        **further: Any,
    ) -> None:
        super().__init__(
            base_url,
            connect_timeout_s,
            message_timeout_s,
            max_message_size_mb,
            websocket_ping_interval_s,
            websocket_ping_timeout_s,
            provider,
            "production" if mode is None else mode,
            headers,
            **further,
        )
        if self.mode != "production":
            raise ConfigurationError(
                f"mode='{mode}': {type(self).__name__} has tools for its actions, which is mode 'production'. Leave "
                "mode out, or use GenericEnvClient."
            )

    def _begin(self, session: Any) -> None:
        super()._begin(session)
        self._tools: list[Tool] | None = None
        self._calls = 0

    async def list_tools(self, use_cache: bool = True) -> list[Tool]:
        """Return the tools that the environment offers.

        Args:
            use_cache: Whether what this client was told before will do.

        Raises:
            EnvironmentExecutionError: The environment failed to list them.
            SessionLostError: The session is gone.
        """
        if self._tools is None or not use_cache:
            self._tools = await super().list_tools()
        return list(self._tools)

    async def get_tool(self, name: str) -> Tool | None:
        """Return the tool of that name, or None. Raises what `list_tools` does."""
        return next((tool for tool in await self.list_tools() if tool.name == name), None)

    async def has_tool(self, name: str) -> bool:
        """Return whether there is a tool of that name. Raises what `list_tools` does."""
        return await self.get_tool(name) is not None

    def _step_payload(self, action: ActT) -> dict[str, Any]:
        if isinstance(action, ListToolsAction):
            return {"type": "list_tools"}
        if isinstance(action, CallToolAction):
            return {"type": "call_tool", "tool_name": action.tool_name, "arguments": action.arguments}
        if isinstance(action, BaseModel):
            return action.model_dump()
        if isinstance(action, Mapping):
            return dict(cast("Mapping[str, Any]", action))
        raise ConfigurationError(
            f"An action must be a CallToolAction, a ListToolsAction, another pydantic model or a mapping, not a "
            f"{type(action).__name__}."
        )

    def _parse_result(self, payload: dict[str, Any]) -> StepResult[Observation]:
        fields: dict[str, Any] = payload.get("observation") or {}
        reward, done, beside = payload.get("reward"), bool(payload.get("done", False)), payload.get("metadata")
        shared: dict[str, Any] = {
            "reward": reward,
            "done": done,
            "metadata": beside if beside is not None else fields.get("metadata") or {},
        }
        observation: Observation
        if isinstance(fields.get("tools"), list):
            tools = [tool_of_mcp(entry) for entry in cast("list[dict[str, Any]]", fields["tools"])]
            observation = ListToolsObservation(tools=tools, **shared)
        elif "tool_name" in fields:
            observation = CallToolObservation(
                tool_name=fields["tool_name"], result=fields.get("result"), error=fields.get("error"), **shared
            )
        else:
            own = {name: value for name, value in fields.items() if name not in _BESIDE}
            observation = GenericMCPObservation(**own, **shared)
        return StepResult(observation=observation, reward=reward, done=done, metadata=beside)

    def _parse_state(self, payload: dict[str, Any]) -> State:
        return State.model_validate(payload)


class MCPToolClient(MCPClientBase[Any]):
    """One session on the server of an environment with tools.

    Example:
        >>> async with MCPToolClient("http://localhost:8000") as env:
        ...     await env.reset()
        ...     print([tool.name for tool in await env.list_tools()])
        ...     print(await env.call_tool("echo_message", message="hello"))
    """

    async def call_tool(self, tool_name: str, arguments: Mapping[str, Any] | None = None, /, **named: Any) -> Any:
        """Call a tool and return its result: its value where the server gives one, otherwise all that came.

        The environment's step is passed by: there is no reward. ``step(CallToolAction(...))`` gives one.

        Args:
            tool_name: The tool.
            arguments: Its arguments, as a mapping.
            named: Its arguments, by name; any name will do, ``name`` and ``tool_name`` too.

        Raises:
            ToolCallError: The tool failed, or was called wrongly; ``error_type`` says which.
            ConfigurationError: The environment was asked for what it cannot do; the text says what to change.
            SessionLostError: The session is gone.
            DeadlineExceededError: No result in time; the session is lost.
        """
        given = {**(arguments or {}), **named}
        self._calls += 1
        request = rpc_request(self._calls, "tools/call", {"name": tool_name, "arguments": given})
        reply = await self._call("call_tool", "mcp", request)
        result = parse_rpc_response(reply.data)
        if isinstance(result, RpcFailure):
            if is_configuration(result.data):
                raise ConfigurationError(result.message, phase="call_tool")
            raise ToolCallError(tool_name, _blame(result), result.message)
        return _value(tool_name, result)


def _value(tool_name: str, result: dict[str, Any]) -> Any:
    if "tool_name" in result:  # an environment that answers with its whole observation
        if result.get("error"):
            error = ToolError.model_validate(result["error"])
            raise ToolCallError(tool_name, f"{getattr(error.error_type, 'value', error.error_type)}", error.message)
        inner = result.get("result")
        if not isinstance(inner, dict):
            return inner
        result = cast("dict[str, Any]", inner)
    if result.get("is_error") or result.get("isError"):
        raise ToolCallError(tool_name, ToolErrorType.EXECUTION_ERROR.value, _text(result))
    return result.get("data", result)


def _text(result: dict[str, Any]) -> str:
    parts = cast("list[Any]", result.get("content") or [])
    texts = [str(cast("dict[str, Any]", part).get("text", "")) for part in parts if isinstance(part, dict)]
    return "\n".join(text for text in texts if text) or "the tool gave no reason"


def _blame(failure: RpcFailure) -> str:
    """Return whose fault it was, as the server says, or as its words do: the public package has one code for all."""
    data: object = failure.data
    told = cast("dict[str, Any]", data).get("error_type") if isinstance(data, dict) else None
    if isinstance(told, str):
        return told
    if failure.message.startswith("Unknown tool"):
        return ToolErrorType.TOOL_NOT_FOUND.value
    if failure.code == RpcErrorCode.INVALID_PARAMS or "validation error" in failure.message:
        return ToolErrorType.INVALID_ARGS.value
    return ToolErrorType.EXECUTION_ERROR.value
