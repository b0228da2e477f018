"""What a server's actions and observations are, asked before any episode is played."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from openenv_trl.client.background import background_portal
from openenv_trl.client.inquiry import fetch_schema
from openenv_trl.client.sync_client import SyncEnvClient
from openenv_trl.errors import ConfigurationError


def schema_of_server(
    client: SyncEnvClient[Any, Any, Any], provider: Any, headers: Mapping[str, str] | None
) -> dict[str, Any]:
    """Return what the client's server answers at ``/schema``. Where a provider starts it, that is done first.

    Args:
        client: A client of the server.
        provider: What starts the server, if anything does.
        headers: Sent with every request.

    Raises:
        ConnectionFailedError: No server answered at the address.
        ServerStartError: The provider could not start it.
    """
    if client.base_url is None:
        client.connect()
    base_url = client.base_url
    if base_url is None:
        raise ConfigurationError("The server has no address.")
    needed = {**_headers_of(provider), **(headers or {})} or None

    async def fetch() -> dict[str, Any]:
        return await fetch_schema(base_url, headers=needed)

    return background_portal().call(fetch)


def _headers_of(provider: Any) -> Mapping[str, str]:
    """The headers that every request to a provider's server needs."""
    replicas = cast("list[Any]", getattr(provider, "replicas", None) or [])
    return replicas[0].headers if replicas else {}
