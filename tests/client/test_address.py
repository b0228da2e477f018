from __future__ import annotations

import pytest

from openenv_trl.client.address import server_address
from openenv_trl.errors import ConfigurationError


@pytest.mark.parametrize(
    ("given", "websocket_url", "http_url"),
    [
        ("http://host:8000", "ws://host:8000/ws", "http://host:8000"),
        ("https://host", "wss://host/ws", "https://host"),
        ("ws://host:8000", "ws://host:8000/ws", "http://host:8000"),
        ("wss://host/", "wss://host/ws", "https://host"),
        ("host:8000", "ws://host:8000/ws", "http://host:8000"),
        ("http://host:8000/", "ws://host:8000/ws", "http://host:8000"),
        ("ws://host:8000/ws", "ws://host:8000/ws", "http://host:8000"),
        ("http://host/games/chess/", "ws://host/games/chess/ws", "http://host/games/chess"),
        ("http://host/games/ws/", "ws://host/games/ws", "http://host/games"),
        ("http://[::1]:8000", "ws://[::1]:8000/ws", "http://[::1]:8000"),
        ("  http://host:1  ", "ws://host:1/ws", "http://host:1"),
    ],
)
def test_a_server_is_found_however_its_address_is_written(given: str, websocket_url: str, http_url: str) -> None:
    address = server_address(given)
    assert (address.websocket_url, address.http_url) == (websocket_url, http_url)


@pytest.mark.parametrize(
    "given", ["", "  ", "ftp://host", "http://", "http://host:port", "http://host:99999", "file:///x"]
)
def test_what_is_no_address_is_told(given: str) -> None:
    with pytest.raises(ConfigurationError, match="base_url"):
        server_address(given)


@pytest.mark.parametrize(
    ("given", "loopback"),
    [
        ("http://localhost:1", True),
        ("http://127.0.0.1:1", True),
        ("http://127.8.8.8", True),
        ("http://[::1]:1", True),
        ("http://game.localhost", True),
        ("http://10.0.0.1", False),
        ("http://example.org", False),
        ("http://localhost.example.org", False),
    ],
)
def test_no_proxy_stands_before_this_machine(given: str, loopback: bool) -> None:
    assert server_address(given).is_loopback is loopback
