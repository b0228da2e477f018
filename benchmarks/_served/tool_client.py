"""The client of the environment with a tool."""

from __future__ import annotations

from openenv.core.env_server.mcp_types import CallToolAction
from openenv.core.mcp_client import MCPToolClient


class ToolClient(MCPToolClient):
    """Calls the tool."""


__all__ = ["CallToolAction", "ToolClient"]
