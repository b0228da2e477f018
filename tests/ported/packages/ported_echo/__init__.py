"""An environment that acts by MCP tools, written for the public package: it says back what it is told."""

from .client import EchoEnv

__all__ = ["EchoEnv"]
