"""The addresses of a server, from whatever a user wrote: http or ws or no scheme, with a slash or ``/ws`` or not."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, replace
from urllib.parse import quote, urlsplit

from openenv_trl.errors import ConfigurationError

_SECURE = {"http": False, "ws": False, "https": True, "wss": True}


@dataclass(frozen=True)
class ServerAddress:
    """Where one server is reached.

    Attributes:
        base_url: What the user gave, without a trailing slash.
        websocket_url: Where sessions are opened.
        http_url: Where ``/health`` and the other routes hang, without a trailing slash.
        is_loopback: Whether it is this machine: no proxy can stand between.
    """

    base_url: str
    websocket_url: str
    http_url: str
    is_loopback: bool


def server_address(base_url: str) -> ServerAddress:
    """Return the addresses of the server at a base URL.

    Raises:
        ConfigurationError: The URL is empty, has no host, a bad port, or a scheme that is not HTTP's or WebSocket's.

    Example:
        >>> server_address("localhost:8000").websocket_url
        'ws://localhost:8000/ws'
    """
    given = base_url.strip()
    if not given:
        raise ConfigurationError("base_url is empty: give the server's address, such as http://localhost:8000.")
    full = given if "://" in given else f"ws://{given}"
    try:
        parts = urlsplit(full)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise ConfigurationError(f"base_url '{base_url}' is no address: {error}.") from error
    if parts.scheme not in _SECURE or not host:
        raise ConfigurationError(
            f"base_url '{base_url}' is no address of a server: write it as http://host:port, https://host or ws://host:port."
        )
    path = parts.path.rstrip("/").removesuffix("/ws")
    secure = "s" if _SECURE[parts.scheme] else ""
    query = f"?{parts.query}" if parts.query else ""
    return ServerAddress(
        base_url=given.rstrip("/"),
        websocket_url=f"ws{secure}://{parts.netloc}{path}/ws{query}",
        http_url=f"http{secure}://{parts.netloc}{path}",
        is_loopback=_is_loopback(host),
    )


def with_query(address: ServerAddress, name: str, value: str) -> ServerAddress:
    """Return the address with one more parameter in the query of its WebSocket's URL."""
    mark = "&" if "?" in address.websocket_url else "?"
    return replace(address, websocket_url=f"{address.websocket_url}{mark}{quote(name)}={quote(value)}")


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
