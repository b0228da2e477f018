"""`MCPEnvironment`: an environment whose agent acts by the tools of an MCP server.

Its tools are Python functions (registered with FastMCP, with the official SDK's server, by `MCPEnvironment.tool`, or
marked as methods) and are called as such, their arguments checked, without the protocol in between. A function that is
no coroutine function never runs on a server's event loop, unless the class says ``EXECUTION = "loop"``.

Source: section "MCPEnvironment" of the OpenEnv package, version 0.10.0, for names and behaviour.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, ClassVar, TypeVar

from openenv_trl.blocking import wait_for
from openenv_trl.environment import RESERVED_TOOL_NAMES, Environment
from openenv_trl.errors import ActionValidationError, ConfigurationError, SessionStateError
from openenv_trl.tools.callable_tool import CallableTool
from openenv_trl.tools.code_mode import callables_of, run_code
from openenv_trl.tools.tool_call import ToolCallError, begin_call, describe_failure, within
from openenv_trl.tools.tool_server import OfferedTool, registry_of, tools_of
from openenv_trl.types import Action, CallToolAction, ListToolsAction, Observation, ServerMode, State, Tool
from openenv_trl.wire.tools import (
    CallToolObservation,
    CallToolResult,
    ListToolsObservation,
    ToolError,
    mcp_tool,
    observation_of_tool,
)

Function = TypeVar("Function", bound=Callable[..., Any])


class MCPEnvironment(Environment[Any, Any, State]):
    """An environment with tools. A step lists them, calls one, or is an action of the subclass's own (`_step_impl`).

    A subclass that does more on each step overrides ``step``, and ``step_async`` where it has asynchronous tools; with
    ``step`` alone, all steps go through it.

    Args:
        mcp_server: A FastMCP server, or the official SDK's; None for an environment with tools of its own only.
        transform: What is done to every observation before it leaves.
        rubric: What gives the reward of every step.

    Raises:
        ConfigurationError: A tool has a reserved name.
    """

    TOOL_CALLS_ARE_STEPS: ClassVar[bool] = True

    mcp_server: Any = None
    _server_tools: dict[str, OfferedTool] | None = None
    _registry: Mapping[Any, Any] | None = None
    _registered: tuple[Any, ...] = ()
    _is_closed: bool = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # A class that only knows of `step` shall have all of its steps go through it.
        if "step" in vars(cls) and "step_async" not in vars(cls):
            cls.step_async = Environment.step_async  # type: ignore[method-assign]  # which calls step

    def __init__(self, mcp_server: Any = None, transform: Any = None, rubric: Any = None) -> None:
        super().__init__(transform, rubric)
        self.mcp_server = mcp_server
        self._own_tools: dict[tuple[str, ServerMode | None], CallableTool] = {}
        for name in self._of_server():
            _refuse_reserved(name)

    # ------------------------------------------------------------------ its tools

    def tool(self, mode: str | ServerMode | None = None) -> Callable[[Function], Function]:
        """Add a function as a tool of this environment.

        Args:
            mode: "production" or "simulation" for a tool that is there only in servers of that mode, in place of
                another one of the same name; None for every mode.

        Raises:
            ConfigurationError: The name is reserved, or there is no such mode.

        Example:
            >>> @self.tool()
            ... def add(a: int, b: int) -> int:
            ...     return a + b
        """
        try:
            only_in = None if mode is None else ServerMode(str(getattr(mode, "value", mode)).lower())
        except ValueError:
            raise ConfigurationError(f"mode={mode!r} is unknown: it must be 'simulation' or 'production'.") from None

        def add(function: Function) -> Function:
            _refuse_reserved(function.__name__)
            if only_in is None and self.mcp_server is not None:
                self.mcp_server.tool()(function)
            else:
                made = CallableTool.of(function)
                self._own()[(made.tool.name, only_in)] = made
            return function

        return add

    def offered_tools(self) -> list[Tool]:
        """The tools that an agent has here and now."""
        return [*self.list_tools(), *(each.tool for each in self._offered().values())]

    def listed_tools(self) -> list[dict[str, Any]]:
        """The tools that an agent has here and now, as entries of ``tools/list``."""
        return [*map(mcp_tool, self.list_tools()), *(each.listed() for each in self._offered().values())]

    def runs_on_loop(self, name: str) -> bool:
        """Whether the tool of that name is asynchronous."""
        found = self._find(name)
        return super().runs_on_loop(name) if found is None else found.on_loop

    def call_tool(self, name: str, arguments: dict[str, Any]) -> Any:
        """Call a tool, which is no step: returns its result in the shape that travels, or an awaitable of it.

        Raises:
            ActionValidationError: No such tool, or arguments that do not fit it.
        """
        found = self._find(name)
        if found is None and name in self._bound_tools():
            return super().call_tool(name, arguments)
        try:
            return begin_call(found, name, arguments)
        except ToolCallError as error:
            raise ActionValidationError(str(error)) from error

    # ------------------------------------------------------------------ its steps

    def step(self, action: Any, timeout_s: float | None = None, **kwargs: Any) -> Any:
        """Take one step: list the tools, call one, or act by `_step_impl`."""
        if isinstance(action, ListToolsAction):
            return ListToolsObservation(tools=self.offered_tools())
        if not isinstance(action, CallToolAction):
            return self._step_impl(action, timeout_s=timeout_s, **kwargs)
        try:
            outcome = self._called(action)
            if inspect.isawaitable(outcome):
                outcome = wait_for(self._limited(action, outcome, timeout_s), what=f"The tool '{action.tool_name}'")
        except Exception as error:  # boundary: a tool may raise anything
            return self._failed(action, error)
        return self._observed(action, outcome)

    async def step_async(self, action: Any, timeout_s: float | None = None, **kwargs: Any) -> Any:
        """Like `step`, on the event loop: asynchronous tools are awaited there, all else runs in a thread."""
        if isinstance(action, ListToolsAction):
            return ListToolsObservation(tools=self.offered_tools())
        is_call = isinstance(action, CallToolAction)
        if self._effective_execution != "loop" and not (is_call and self.runs_on_loop(action.tool_name)):
            return await self._in_thread(action, timeout_s, kwargs)
        if not is_call:
            return self._step_impl(action, timeout_s=timeout_s, **kwargs)
        try:
            outcome = self._called(action)
            if inspect.isawaitable(outcome):
                outcome = await self._limited(action, outcome, timeout_s)
        except Exception as error:  # boundary: a tool may raise anything
            return self._failed(action, error)
        return self._observed(action, outcome)

    def step_may_block(self, action: Any) -> bool:
        """Whether the step is one for a thread: whatever is not a list of tools or the call of an asynchronous one."""
        if isinstance(action, CallToolAction):
            return not self.runs_on_loop(action.tool_name)
        return not isinstance(action, ListToolsAction)

    def _step_impl(self, action: Any, timeout_s: float | None = None, **kwargs: Any) -> Any:
        """Take a step that is no tool call. Override it where there are such steps.

        Raises:
            ActionValidationError: There are none.
        """
        raise ActionValidationError(
            f"{type(self).__name__} acts by tool calls: a step is a CallToolAction or a ListToolsAction, "
            f"not a {type(action).__name__}."
        )

    # ------------------------------------------------------------------ code that calls its tools

    @property
    def supports_code_mode(self) -> bool:
        """Whether `execute_code` runs code: only where each environment has a process of its own."""
        return self._effective_execution == "process"

    def get_callables(self) -> dict[str, Callable[..., Any]]:
        """The tools as Python functions, by name."""
        return callables_of(self._offered())

    def execute_code(self, code: str) -> Observation:
        """Run Python code that calls the tools as functions and leaves what it found in ``result``.

        Returns:
            An observation with ``metadata["result"]``, or ``metadata["error"]``.

        Raises:
            ConfigurationError: The environment has no process of its own.
        """
        return run_code(code, self.get_callables(), execution=self._effective_execution, owner=type(self).__name__)

    # ------------------------------------------------------------------ its MCP client, and the end

    @property
    def mcp_client(self) -> Any:
        """A client of FastMCP's for the server, in this process; None where there is no server."""
        if self.mcp_server is None:
            return None
        from fastmcp import Client  # pyright: ignore  # as the environment's own code uses it

        return Client(self.mcp_server)

    @asynccontextmanager
    async def mcp_session(self) -> AsyncGenerator[Any]:
        """Hold a session of `mcp_client`, for code that wants to speak the protocol itself."""
        client = self.mcp_client
        if client is None:
            raise ConfigurationError(f"{type(self).__name__} has no MCP server to hold a session with.")
        async with client:
            yield client

    def close(self) -> None:
        """Let go of the server; no tool can be called after this."""
        self.mcp_server = None
        self._server_tools = None
        self._is_closed = True

    # ------------------------------------------------------------------ within

    @property
    def _mode(self) -> str:
        return self.server_mode.value

    @_mode.setter
    def _mode(self, mode: str) -> None:
        self.server_mode = ServerMode(mode)

    def _own(self) -> dict[tuple[str, ServerMode | None], CallableTool]:
        if "_own_tools" not in vars(self):
            raise ConfigurationError(f"Call super().__init__(...) in {type(self).__name__} before adding tools.")
        return self._own_tools

    def _of_server(self) -> dict[str, OfferedTool]:
        if self._is_closed:
            raise SessionStateError(f"This {type(self).__name__} is closed: build another one.")
        tools, registry = self._server_tools, self._registry
        # Each call looks at the number alone; `_offered` at the tools themselves.
        if tools is not None and (registry is None or len(registry) == len(self._registered)):
            return tools
        return self._read_server()

    def _read_server(self) -> dict[str, OfferedTool]:
        if self.mcp_server is None:
            return {}
        self._registry = registry = registry_of(self.mcp_server)
        self._registered = () if registry is None else tuple(registry.values())
        self._server_tools = tools = tools_of(self.mcp_server)
        return tools

    def _find(self, name: str) -> OfferedTool | None:
        own = vars(self).get("_own_tools")
        if own:
            found = own.get((name, self.server_mode)) or own.get((name, None))
            if found is not None:
                return found
        return self._of_server().get(name)

    def _offered(self) -> dict[str, OfferedTool]:
        offered = dict(self._of_server())
        registry = self._registry
        if registry is not None and any(a is not b for a, b in zip(registry.values(), self._registered, strict=False)):
            offered = dict(self._read_server())
        for (name, only_in), each in vars(self).get("_own_tools", {}).items():
            if only_in in (None, self.server_mode):
                offered[name] = self._find(name) or each
        return offered

    def _called(self, action: CallToolAction) -> Any:
        name = action.tool_name
        found = self._find(name)
        if found is None and name in self._bound_tools():
            return super().call_tool(name, action.arguments)
        return begin_call(found, name, action.arguments)

    def _limited(self, action: CallToolAction, outcome: Awaitable[Any], timeout_s: float | None) -> Awaitable[Any]:
        own_limit = getattr(self._find(action.tool_name), "timeout_s", None)
        limits = [limit for limit in (timeout_s, own_limit) if limit is not None]
        return within(min(limits), action.tool_name, outcome) if limits else outcome

    def _observed(self, action: CallToolAction, outcome: Any) -> Observation:
        if type(outcome) is CallToolResult:
            return CallToolObservation(tool_name=action.tool_name, result=outcome)
        return observation_of_tool(action.tool_name, outcome)

    def _failed(self, action: CallToolAction, error: Exception) -> Observation:
        if isinstance(error, ConfigurationError | SessionStateError):
            raise error  # for the environment's author or its server, not for the agent
        kind, text = describe_failure(action.tool_name, error, self.mcp_server)
        return CallToolObservation(tool_name=action.tool_name, error=ToolError(error_type=kind, message=text))

    async def _in_thread(self, action: Action, timeout_s: float | None, kwargs: dict[str, Any]) -> Any:
        from anyio import to_thread

        return await to_thread.run_sync(lambda: MCPEnvironment.step(self, action, timeout_s, **kwargs))


def _refuse_reserved(name: str) -> None:
    if name in RESERVED_TOOL_NAMES:
        raise ConfigurationError(
            f"'{name}' is reserved: reset, step, state and close are the trainer's, never the agent's. "
            "Give the tool another name."
        )
