"""The socket that a server accepts from. It imports no server, so that a parent of servers stays small."""

from __future__ import annotations

import socket

from openenv_trl.errors import ConfigurationError

_LAST_PORT = 65_535


def listen(host: str, port: int, fd: int | None = None) -> socket.socket:
    """Return a listening socket: a new one, or the inherited one that a file descriptor names.

    Raises:
        ConfigurationError: ``fd`` is not a socket, or the port cannot be had.
    """
    if fd is not None:
        try:
            return socket.socket(fileno=fd)
        except (OSError, ValueError) as error:  # ValueError: it is negative
            raise ConfigurationError(f"--fd {fd} is not an inherited socket: {error}.") from error
    if not 0 <= port <= _LAST_PORT:
        raise ConfigurationError(f"--port {port} is no port: give one from 1 to {_LAST_PORT}, or 0 for any.")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except (OSError, UnicodeError) as error:  # UnicodeError: the host's name has an empty or an overlong part
        listening.close()
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigurationError(
            f"Cannot listen on {host}:{port}: {reason}. Choose another --host or --port."
        ) from error
    listening.listen(2048)
    return listening


def address(listening: socket.socket) -> str:
    """Return where a listening socket is reached, as a URL."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
