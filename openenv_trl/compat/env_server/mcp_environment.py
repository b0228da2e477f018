"""The names of ``openenv.core.env_server.mcp_environment``."""

from openenv_trl.compat._names import names_of
from openenv_trl.env_server import RESERVED_TOOL_NAMES, MCPEnvironment

__all__ = ["RESERVED_TOOL_NAMES", "MCPEnvironment"]

__getattr__ = names_of(__name__)
