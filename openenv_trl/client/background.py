"""One event loop in one thread, shared by all blocking clients of a process.

The thread is a daemon: a client that was never closed does not keep the process alive.
"""

from __future__ import annotations

import os
import threading
from concurrent.futures import Future

import anyio
from anyio.from_thread import BlockingPortal


class _BackgroundLoop:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._portal: BlockingPortal | None = None

    def portal(self) -> BlockingPortal:
        with self._lock:
            if self._portal is None:
                started: Future[BlockingPortal] = Future()
                thread = threading.Thread(target=anyio.run, args=(_serve, started), name="openenv-clients", daemon=True)
                thread.start()
                self._portal = started.result()
            return self._portal


async def _serve(started: Future[BlockingPortal]) -> None:
    async with BlockingPortal() as portal:
        started.set_result(portal)
        await portal.sleep_until_stopped()


_loop = _BackgroundLoop()


def background_portal() -> BlockingPortal:
    """Return the way into the shared event loop; the first call starts it."""
    return _loop.portal()


def _forget_loop() -> None:
    global _loop
    _loop = _BackgroundLoop()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_loop)  # threads do not survive a fork
