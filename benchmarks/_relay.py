"""A relay before a server that counts the bytes of each direction."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit


@dataclass
class Relay:
    """A relay that runs, and what has passed it."""

    url: str
    to_server_bytes: int = 0
    to_client_bytes: int = 0


@contextmanager
def relayed(url: str) -> Iterator[Relay]:
    """Run a relay before the server at the address until the end of the block."""
    address = urlsplit(url)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        relay = Relay(f"http://127.0.0.1:{listening.getsockname()[1]}")

        def accept() -> None:
            while True:
                try:
                    client, _ = listening.accept()
                except OSError:
                    return  # the block has ended
                server = socket.create_connection((address.hostname or "", address.port or 0))
                for source, sink, count in ((client, server, "to_server_bytes"), (server, client, "to_client_bytes")):
                    threading.Thread(target=pump, args=(source, sink, count), daemon=True).start()

        def pump(source: socket.socket, sink: socket.socket, count: str) -> None:
            try:
                while data := source.recv(1 << 16):
                    setattr(relay, count, getattr(relay, count) + len(data))
                    sink.sendall(data)
                sink.shutdown(socket.SHUT_WR)
            except OSError:
                sink.close()

        threading.Thread(target=accept, daemon=True).start()
        yield relay
