"""Its client."""

from openenv.core.mcp_client import MCPToolClient


class EchoEnv(MCPToolClient):
    """Lists and calls the tools."""
