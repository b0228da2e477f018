"""Opening a socket to a server, through a proxy where the environment names one; each refusal has its own words."""

from __future__ import annotations

import base64
import json
import logging
from typing import Any, cast
from urllib.parse import unquote, urlsplit

import anyio
from picows import (
    WSError,
    WSHandshakeError,
    WSInvalidURL,
    WSUpgradeRequest,
    WSUpgradeResponse,
    ws_connect,  # pyright: ignore[reportUnknownVariableType] - its last parameter has no type
)
from python_socks import ProxyError

from openenv_trl.client.address import ServerAddress
from openenv_trl.client.message_socket import MessageSocket, OnClosed, OnMessage, SocketSettings
from openenv_trl.client.proxies import proxy_for
from openenv_trl.errors import ConfigurationError, ConnectionFailedError

_BUFFER_BYTES = 4096  # to begin with; it grows to what comes, and stays small where little comes
_TOLD = (403, 426, 503)  # statuses with which a server of ours says in words why it does not take a socket
_LONGEST_DETAIL = 500
_LEFT_ALONE_S = 1.0  # beyond the time for connecting: then picows itself drops a handshake that nobody waits for

# All that picows has to tell reaches the user as an error of ours, so its own log would only say it twice. An adapter,
# since picows makes a new logger for each connection out of a plain one.
_quiet = logging.getLogger(__name__)
_quiet.setLevel(logging.CRITICAL + 1)
_LOG = logging.LoggerAdapter(_quiet, {})


async def open_message_socket(
    address: ServerAddress, settings: SocketSettings, on_message: OnMessage, on_closed: OnClosed
) -> MessageSocket:
    """Open a socket to the server.

    Args:
        address: The server.
        settings: How to open and keep the socket.
        on_message: Takes each message that comes, and whether it is text. May be called before this returns.
        on_closed: Takes how the socket ended, after the last message. Not called where this raises.

    Raises:
        ConnectionFailedError: Nothing answered, or what answered is no OpenEnv server; the text names the URL.
        ConfigurationError: The URL, a header or the proxy cannot be used.
    """
    url, headers = _request(address, settings)
    proxy = proxy_for(address)
    via = f" through the proxy {_without_secret(proxy)}" if proxy else ""
    socket = MessageSocket(settings, on_message, on_closed)

    def accept(request: WSUpgradeRequest, response: WSUpgradeResponse) -> MessageSocket:
        socket.subprotocol = response.headers.get("Sec-WebSocket-Protocol")
        return socket

    try:
        with anyio.fail_after(settings.connect_timeout_s):
            transport, listener = await ws_connect(
                accept,
                url,
                websocket_handshake_timeout=settings.connect_timeout_s + _LEFT_ALONE_S,
                logger_name=_LOG,
                max_frame_size=settings.max_message_bytes,
                extra_headers=headers,
                proxy=proxy,
                read_buffer_init_size=_BUFFER_BYTES,
            )
    except WSInvalidURL as error:
        raise ConfigurationError(f"{url} is not an address that can be connected to: {error}.") from error
    except WSHandshakeError as error:
        raise _refusal(url, error) from error
    except ProxyError as error:
        text = f"Cannot connect to {url}{via}: {error}. Check the proxy, or list the host in no_proxy."
        raise ConnectionFailedError(text, phase="connect") from error
    except TimeoutError as error:
        raise ConnectionFailedError(
            f"No answer from {url}{via} within {settings.connect_timeout_s:g} s. Check that the server is up, or give "
            "it longer with connect_timeout_s.",
            phase="connect",
        ) from error
    except OSError as error:
        raise ConnectionFailedError(
            f"Cannot connect to {url}{via}: {error}. Check that the server is up, and its host and port.",
            phase="connect",
        ) from error
    except WSError as error:
        raise _refused(url, str(error)) from error
    except BaseException:
        socket.abandon()  # cancelled: what is on its way must not stay open
        raise
    if listener is not socket:  # the connection ended before the answer to the handshake
        raise ConnectionFailedError(
            f"{url} took the connection and closed it without an answer. Its process may have just ended, or have "
            "failed to start: its log tells why.",
            phase="connect",
        )
    _check_agreement(url, socket, transport.response, settings)
    return socket


def _request(address: ServerAddress, settings: SocketSettings) -> tuple[str, dict[str, str]]:
    """Return the URL, without user and password, and the headers of the handshake."""
    url = address.websocket_url
    headers: dict[str, str] = {}
    parts = urlsplit(url)
    if parts.username is not None:
        url = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
        secret = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
        headers["Authorization"] = f"Basic {base64.b64encode(secret).decode()}"
    headers.update(settings.headers or {})
    if settings.subprotocols:
        headers["Sec-WebSocket-Protocol"] = ", ".join(settings.subprotocols)
    for name, value in headers.items():
        if not isinstance(value, str):  # pyright: ignore[reportUnnecessaryIsInstance] - what users pass
            raise ConfigurationError(f"The header {name} must be text, not {type(value).__name__}.")
        if any(sign in name + value for sign in "\r\n\0"):
            raise ConfigurationError(f"The header {name!r} holds a line break, which no header can.")
    return url, headers


def _check_agreement(url: str, socket: MessageSocket, response: WSUpgradeResponse, settings: SocketSettings) -> None:
    answer = ""
    if socket.subprotocol is not None and socket.subprotocol not in settings.subprotocols:
        answer = f"one that speaks '{socket.subprotocol}', which was not offered"
    elif response.headers.get("Sec-WebSocket-Extensions"):
        answer = "one with extensions that were not offered"
    if answer:
        socket.abandon()
        raise _refused(url, answer)


def _refusal(url: str, error: WSHandshakeError) -> ConnectionFailedError:
    status = _status(error)
    if status is None:
        return _refused(url, str(error))
    detail = _detail(error.raw_body)
    if status == 401:
        return ConnectionFailedError(
            f"{url} refused the connection with HTTP status 401: {_stop(detail)}pass the headers that it asks for, "
            "such as headers={'Authorization': 'Bearer ...'}, or set its token in the environment variable "
            "OPENENV_TRL_TOKEN.",
            phase="connect",
        )
    if detail and status in _TOLD:
        text = f"{url} refused the connection with HTTP status {status}: {detail}"
        return ConnectionFailedError(text, phase="connect")
    return _refused(url, f"HTTP status {status}")


def _detail(body: bytes | None) -> str:
    """What the server itself says of its refusal; nothing where it says it in no way that is known."""
    text = (body or b"").decode("utf-8", "replace").strip()
    try:
        found: Any = json.loads(text)
    except ValueError:
        return ""
    detail = cast("dict[str, Any]", found).get("detail") if isinstance(found, dict) else None
    return detail[:_LONGEST_DETAIL] if isinstance(detail, str) else ""


def _stop(detail: str) -> str:
    return f"{detail} In this client, " if detail else ""


def _status(error: WSHandshakeError) -> int | None:
    if error.response is not None:
        return error.response.status.value
    # picows reads HTTP/1.1 and the registered statuses only; proxies answer with others.
    words = (error.raw_header or b"").split(b"\r\n", 1)[0].split(b" ", 2)
    return int(words[1]) if len(words) > 1 and words[0].startswith(b"HTTP/") and words[1].isdigit() else None


def _refused(url: str, answer: str) -> ConnectionFailedError:
    return ConnectionFailedError(
        f"{url} answered, but not with a WebSocket ({answer}): there is no OpenEnv server at this address. Give the "
        "server's base URL, such as http://host:8000; its /health tells whether it is one.",
        phase="connect",
    )


def _without_secret(proxy: str) -> str:
    scheme, _, rest = proxy.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}"
