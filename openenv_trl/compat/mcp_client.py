"""The names of ``openenv.core.mcp_client``."""

from openenv_trl.client import EnvClient, GenericMCPObservation, MCPClientBase, MCPToolClient
from openenv_trl.compat._names import names_of

__all__ = ["EnvClient", "GenericMCPObservation", "MCPClientBase", "MCPToolClient"]

__getattr__ = names_of(__name__)
