"""What a Swarm says of its nodes: their names, how they are, and where their ports can be reached."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from openenv_trl.errors import ProviderError


def node_name(node: Mapping[str, Any] | None) -> str:
    """What people call a node."""
    return "(unknown)" if node is None else node["Description"]["Hostname"]


def node_state(node: Mapping[str, Any] | None) -> str:
    """``ready``, ``down``, ``drain`` or what else a node is."""
    if node is None:
        return "unknown"
    state: str = node["Status"]["State"]
    return "drain" if state == "ready" and node["Spec"].get("Availability") == "drain" else state


def node_address(node: Mapping[str, Any] | None, known: Mapping[str, str], engine: str) -> str:
    """Where the ports that a node publishes can be reached.

    Args:
        node: The node.
        known: Addresses that the user gave, by host name.
        engine: The address of the manager's API.
    """
    if node is None:
        raise ProviderError("The Swarm does not know the node that runs a task: was it removed meanwhile?")
    name = node_name(node)
    if name in known:
        return known[name]
    address: str = node["Status"].get("Addr", "")
    if address in ("", "0.0.0.0"):
        manager: dict[str, str] = node.get("ManagerStatus") or {}
        address = manager.get("Addr", "").rpartition(":")[0].strip("[]")
    if address in ("", "0.0.0.0", "::1") or address.startswith("127."):
        # As seen from the engine's machine, which is where its API is.
        parts = urlsplit(engine)
        return (parts.hostname if parts.scheme in ("tcp", "http", "https", "ssh") else None) or "127.0.0.1"
    return address
