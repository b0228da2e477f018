"""Free ports without a race: a port is bound by this process before anyone is told its number.

A ``PortReservation`` holds a socket that is bound and never listens. While it is held the system gives the
port to nobody else, and a connection to it is refused unless a server listens there. On Linux a second
socket may be bound to the same port as long as both set SO_REUSEADDR and neither listens yet: that is how a
server comes to its port while the reservation stands, again after a restart. Where the system does not
allow that, the reservation is given up at the last moment.
"""

from __future__ import annotations

import errno
import socket
import sys

from openenv_trl.errors import ConfigurationError, ProviderError

_KEEPS_RESERVATION = sys.platform.startswith("linux")
_BACKLOG = 2048


class PortReservation:
    """One port of this host, kept for one replica.

    Args:
        host: The address to listen on.
        port: The port wanted; one that is free if None.

    Raises:
        ConfigurationError: The host is no address of this machine.
        ProviderError: The port is taken.
    """

    def __init__(self, host: str, port: int | None = None) -> None:
        self.host = host
        try:
            held = _bound(host, port or 0)
        except OSError as error:
            if port is not None and error.errno in (errno.EADDRINUSE, errno.EACCES):
                raise ProviderError(
                    f"port {port} of {host} cannot be had: {error}. Name another, or none, to get a free one.",
                    phase="start",
                ) from error
            raise ConfigurationError(f"host={host!r} is no address that this machine can listen on: {error}") from error
        self._socket: socket.socket | None = held
        self.port: int = held.getsockname()[1]

    def listening_socket(self) -> socket.socket:
        """A new socket that listens on the port, to be handed to the server. The caller closes its own copy."""
        if not _KEEPS_RESERVATION:
            self.close()
        listener = _bound(self.host, self.port)
        listener.listen(_BACKLOG)
        return listener

    def make_way(self, hold: bool) -> None:
        """Lets a server bind the port by its number: with the reservation standing if wanted and possible."""
        if not (hold and _KEEPS_RESERVATION):
            self.close()

    def close(self) -> None:
        """Gives the port back. May be called again."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
    except BaseException:
        bound.close()
        raise
    return bound
