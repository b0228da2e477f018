"""Clients of environment servers, asynchronous and blocking."""

from openenv_trl.client.auto import AutoAction, AutoEnv
from openenv_trl.client.env_client import EnvClient
from openenv_trl.client.generic import GenericAction, GenericEnvClient
from openenv_trl.client.inquiry import fetch_health, fetch_metadata, fetch_promises, fetch_schema
from openenv_trl.client.sync_client import SyncEnvClient
from openenv_trl.client.tool_client import GenericMCPObservation, MCPClientBase, MCPToolClient
from openenv_trl.client.typed_client import TypedEnvClient

__all__ = [
    "AutoAction",
    "AutoEnv",
    "EnvClient",
    "GenericAction",
    "GenericEnvClient",
    "GenericMCPObservation",
    "MCPClientBase",
    "MCPToolClient",
    "SyncEnvClient",
    "TypedEnvClient",
    "fetch_health",
    "fetch_metadata",
    "fetch_promises",
    "fetch_schema",
]
