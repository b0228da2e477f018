"""An event loop in a thread of its own, and the way into it from any thread, with a running loop or without.

The thread is a daemon: what was never closed does not keep the process alive.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Any, TypeVar

import anyio
import anyio.to_thread
from anyio.from_thread import BlockingPortal

from openenv_trl.errors import ProviderError

T = TypeVar("T")


class BackgroundLoop:
    """One event loop in one thread, started when it is first needed.

    Args:
        name: The thread's name.
        for_its_process: What to say in a forked copy of a process in which the loop runs; None where the copy has a
            loop of its own.
    """

    def __init__(self, name: str, for_its_process: str | None = None) -> None:
        self._name = name
        self._for_its_process = for_its_process
        self._lock = threading.Lock()
        self._portal: BlockingPortal | None = None
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()

    @property
    def runs(self) -> bool:
        """Whether the loop runs, in this process."""
        return self._portal is not None and self._pid == os.getpid()

    def check_process(self) -> None:
        """See to it that what runs on the loop is not another process's.

        Raises:
            ProviderError: It is.
        """
        if self._for_its_process is not None and self._portal is not None and self._pid != os.getpid():
            raise ProviderError(self._for_its_process)

    def portal(self) -> BlockingPortal:
        """The way into the loop; the first call starts it, also the first in a forked process."""
        self.check_process()
        if self._pid != os.getpid():  # threads do not survive a fork, and locks may be held for ever in the copy
            self._lock, self._portal, self._thread, self._pid = threading.Lock(), None, None, os.getpid()
        with self._lock:
            if self._portal is None:
                started: Future[BlockingPortal] = Future()
                self._thread = threading.Thread(target=anyio.run, args=(_serve, started), name=self._name, daemon=True)
                self._thread.start()
                self._portal = started.result()
            return self._portal

    async def call(self, function: Callable[..., Awaitable[T]], *arguments: Any) -> T:
        """Run an async function on the loop, from another asyncio loop, and return what it gives.

        A cancelled caller waits until the function has ended too.

        Args:
            function: What to run.
            *arguments: Its arguments.
        """
        portal = self.portal()
        outcome: Future[T] = Future()
        ended = threading.Event()
        scopes: list[anyio.CancelScope] = []

        async def run() -> None:
            try:
                with anyio.CancelScope() as scope:
                    scopes.append(scope)
                    try:
                        outcome.set_result(await function(*arguments))
                    except (Exception, SystemExit, KeyboardInterrupt) as error:  # the loop goes on, whatever it is
                        outcome.set_exception(error)
            finally:
                outcome.cancel()  # does nothing where it is done
                ended.set()

        portal.start_task_soon(run)
        try:
            return await asyncio.shield(asyncio.wrap_future(outcome))
        except asyncio.CancelledError:
            portal.start_task_soon(_cancel, scopes)
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(ended.wait, limiter=anyio.CapacityLimiter(1))
            raise

    def close(self) -> None:
        """End the loop and its thread, and what runs there. May be called again, and from the loop itself never."""
        with self._lock:
            portal, self._portal = self._portal, None
            thread, self._thread = self._thread, None
        if portal is not None and self._pid == os.getpid():
            portal.start_task_soon(portal.stop, True)
            if thread is not None:
                thread.join()


async def _cancel(scopes: list[anyio.CancelScope]) -> None:
    for scope in scopes:
        scope.cancel()


async def _serve(started: Future[BlockingPortal]) -> None:
    async with BlockingPortal() as portal:
        started.set_result(portal)
        await portal.sleep_until_stopped()
