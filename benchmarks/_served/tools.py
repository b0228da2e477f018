"""An environment with one tool, and the action and observation of its steps."""

from __future__ import annotations

from typing import Any

from fastmcp import FastMCP
from openenv.core.env_server.mcp_environment import MCPEnvironment
from openenv.core.env_server.mcp_types import CallToolAction as ToolStep
from openenv.core.env_server.mcp_types import CallToolObservation as ToolStepObservation
from openenv.core.env_server.types import Action, Observation, State


class ToolEnvironment(MCPEnvironment):
    """Says what it is told, by a tool."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        server = FastMCP("echo")

        @server.tool
        def echo(message: str) -> str:
            """Say the message."""
            return message

        super().__init__(server)

    def reset(self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any) -> Observation:
        return Observation()

    def _step_impl(self, action: Action, timeout_s: float | None = None, **kwargs: Any) -> Observation:
        raise ValueError("This environment has tools only.")

    @property
    def state(self) -> State:
        return State()


__all__ = ["ToolEnvironment", "ToolStep", "ToolStepObservation"]
