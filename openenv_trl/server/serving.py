"""A process that serves one application: uvicorn, set up for sessions that stay open.

Messages up to 100 MiB, as the client takes them; no compression of messages (it costs more time than it saves on a
fast network); SIGTERM drains the server (`draining`), closes the sockets, then the environments, and ends the process
within seconds of that even where an environment hangs. The process may be one of several workers (`workers`).
"""

from __future__ import annotations

import gc
import ipaddress
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import uvicorn

from openenv_trl.server.draining import Drain, DrainingServer, states_of
from openenv_trl.server.guarded_http import GuardedHttpProtocol
from openenv_trl.server.lease_door import with_lease_door
from openenv_trl.server.listening import address, listen
from openenv_trl.server.workers.place import WorkerPlace
from openenv_trl.wire.frames import MAX_MESSAGE_BYTES

logger = logging.getLogger("openenv_trl.server")

# At "info" uvicorn tells of every connection; a trainer opens thousands. At "debug" and "trace" it writes the heads of
# requests and what sockets carry, and tokens with them.
_UVICORNS_LEVEL = {"info": "warning", "debug": "info", "trace": "info"}

# A provider sets it on every server that it starts, which knows by whom it can be reached; see `providers.owner`.
_OWNER_VARIABLE = "OPENENV_TRL_OWNER"

_JOIN_S = 0.5  # for idle threads to end by themselves


@dataclass(frozen=True)
class ServerSettings:
    """Where and how a server listens."""

    host: str = "127.0.0.1"
    """The address to listen on; "0.0.0.0" for all."""
    port: int = 8000
    """The port to listen on; 0 for any free one."""
    fd: int | None = None
    """A listening socket that this process has inherited, in place of host and port."""
    log_level: str = "info"
    """One of uvicorn's: critical, error, warning, info, debug."""
    max_message_bytes: int = MAX_MESSAGE_BYTES
    """The longest message that a client may send."""
    fast_sockets: bool = True
    """Whether sockets at an application's own doors are carried without ASGI, by picows."""
    shutdown_grace_s: int = 3
    """Seconds that calls which still run get when the server is asked to stop."""


def serve(app: Callable[..., Any], settings: ServerSettings, place: WorkerPlace | None = None) -> None:
    """Serve the application until SIGTERM or SIGINT.

    Args:
        app: The application.
        settings: Where and how to listen.
        place: This process's place among several workers, if it is one of them.

    Raises:
        ConfigurationError: ``fd`` is not a socket, or the port cannot be had.
    """
    states = states_of(app)
    hosts = [state.session_host for state in states]
    drain_s = max((state.settings.drain_timeout_s for state in states), default=0.0)
    config, drain = uvicorn_config(with_lease_door(app), settings), Drain(drain_s)
    if place is None:
        server = DrainingServer(config, hosts, drain)
    else:
        from openenv_trl.server.workers.worker import worker_server

        server = worker_server(config, hosts, drain, place, longest_stop_s=drain_s + settings.shutdown_grace_s)
    listening = listen(settings.host, settings.port, settings.fd)
    if place is None or place.index == 0:  # what is true of all workers is said once
        _warn_of_open_door(listening, states)
    # uvicorn does the same while it runs; a signal just before that counts too, and one after it kills no process that
    # is about to end well.
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, server.handle_exit)
    # What is imported stays: the garbage collector need not look through it again and again.
    gc.collect()
    gc.freeze()
    gc.enable()
    with listening:
        if place is None:
            logger.info("Serving on %s", address(listening))
        server.run(sockets=[listening])
    _leave_stuck_threads()


def _warn_of_open_door(listening: socket.socket, states: list[Any]) -> None:
    if os.environ.get(_OWNER_VARIABLE):
        return  # in a container it listens on all addresses, and the engine decides who reaches them
    host = str(listening.getsockname()[0])
    if ipaddress.ip_address(host.partition("%")[0]).is_loopback or all(state.settings.token for state in states):
        return
    logger.warning("Whoever reaches %s may use this server: set OPENENV_TRL_TOKEN, or listen on 127.0.0.1", host)


def uvicorn_config(app: Callable[..., Any], settings: ServerSettings) -> uvicorn.Config:
    """Return uvicorn's configuration: its fastest parts that are installed, and the limits above."""
    return uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        log_config=None,
        log_level=_UVICORNS_LEVEL.get(settings.log_level, settings.log_level),
        access_log=settings.log_level == "debug",
        http=GuardedHttpProtocol,
        ws=_socket_protocol(settings),
        ws_max_size=settings.max_message_bytes,
        ws_per_message_deflate=False,
        timeout_graceful_shutdown=settings.shutdown_grace_s,
    )


def _socket_protocol(settings: ServerSettings) -> Any:
    if not settings.fast_sockets:
        return "auto"
    from openenv_trl.server.fast_socket import FastWebSocketProtocol

    return FastWebSocketProtocol


def _leave_stuck_threads() -> None:
    others = [thread for thread in threading.enumerate() if thread is not threading.main_thread() and not thread.daemon]
    deadline = time.monotonic() + _JOIN_S
    for thread in others:
        thread.join(max(0.0, deadline - time.monotonic()))
    stuck = [thread for thread in others if thread.is_alive()]
    if stuck:
        # A call that never returns would keep the interpreter from ending.
        logger.warning("%d environment call(s) did not return; leaving them", len(stuck))
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
