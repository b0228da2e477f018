"""The client: it lists the tools and calls them."""

from __future__ import annotations

from openenv_trl.client import MCPToolClient


class EchoEnv(MCPToolClient):
    """One session on an echo server.

    Example:
        >>> with EchoEnv("http://localhost:8000").sync() as env:
        ...     env.reset()
        ...     print(env.call_tool("echo_message", message="Hello!"))
    """
