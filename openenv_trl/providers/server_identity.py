"""Whether two addresses name the same server: ``h:1``, ``http://H:1/`` and ``ws://h:1/ws`` do."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

from openenv_trl.errors import ConfigurationError

_DEFAULT_PORTS = {"http": 80, "https": 443}
_SCHEMES = {"ws": "http", "wss": "https"}


def server_identity(base_url: str) -> str:
    """The one way to write a server's address that stands for all ways.

    Example:
        >>> server_identity("ws://Localhost:8000/ws") == server_identity("localhost:8000")
        True
    """
    given = base_url.strip()
    try:
        parts = urlsplit(given if "://" in given else f"http://{given}")
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return given  # no address at all; whoever connects to it will say so
    scheme = _SCHEMES.get(parts.scheme, parts.scheme)
    path = parts.path.rstrip("/").removesuffix("/ws").rstrip("/")
    query = f"?{parts.query}" if parts.query else ""
    return f"{scheme}://{host}:{port or _DEFAULT_PORTS.get(scheme, '')}{path}{query}"


def refuse_twins(base_urls: Sequence[str]) -> None:
    """Check that no server is named twice.

    Raises:
        ConfigurationError: One is; the message has both ways in which it is written.
    """
    seen: dict[str, str] = {}
    for url in base_urls:
        identity = server_identity(url)
        if identity in seen:
            raise ConfigurationError(
                f"base_urls names a server twice: '{seen[identity]}' and '{url}'. Name it once, and raise "
                "sessions_per_server instead."
            )
        seen[identity] = url
