"""An event loop in a thread of its own, for code that is called by a trainer's synchronous loop.

Jobs are handed over from the trainer's thread, as many at once as there are, and their futures waited for there. A
job runs in one task group with all others, so that none outlives `close`. Whatever a job raises ends that job alone,
also what is no ``Exception``: an environment's ``sys.exit()`` must not stop a loop that others live on.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

import anyio
import anyio.from_thread
from anyio.abc import TaskGroup, TaskStatus

from openenv_trl.errors import SessionStateError

T = TypeVar("T")


def closed_in_call() -> SessionStateError:
    """What a call ends with whose loop was closed under it."""
    return SessionStateError("The environments were closed in the middle of a call.")


class BackgroundLoop:
    """The loop. It starts when it is made, and runs until `close`.

    Raises:
        SessionStateError: From `submit` and `call`, after `close`.
    """

    def __init__(self) -> None:
        self._exit = contextlib.ExitStack()
        self._portal: anyio.from_thread.BlockingPortal | None = self._exit.enter_context(
            anyio.from_thread.start_blocking_portal("asyncio")
        )
        self._tasks: TaskGroup
        self._stop: anyio.Event
        self._open: set[Future[Any]] = set()
        self._portal.start_task(self._serve)

    @property
    def is_closed(self) -> bool:
        """Whether no more jobs are taken."""
        return self._portal is None

    def call(self, function: Callable[..., Awaitable[T]], *arguments: Any) -> T:
        """Run one async function to its end."""
        return self.submit([lambda: function(*arguments)])[0].result()

    def submit(self, jobs: Sequence[Callable[[], Awaitable[T]]]) -> list[Future[T]]:
        """Start jobs side by side; they have the loop's attention at once, however many they are."""
        if self._portal is None:
            raise SessionStateError("The environments were closed; make a new factory for further training.")
        futures: list[Future[Any]] = [Future() for _ in jobs]
        self._open.update(futures)
        self._portal.start_task_soon(self._start, list(jobs), futures)
        return futures

    def start_soon(self, function: Callable[..., Awaitable[Any]], *arguments: Any) -> None:
        """On the loop itself: start a job whose end nobody waits for."""
        self._tasks.start_soon(self._run, lambda: function(*arguments), None)

    def close(self) -> None:
        """Cancel what runs, and end the thread. May be called again."""
        portal, self._portal = self._portal, None
        if portal is None:
            return
        portal.call(self._stop.set)
        self._exit.close()
        for future in list(self._open):
            if not future.done():
                future.set_exception(closed_in_call())

    async def _serve(self, *, task_status: TaskStatus[None]) -> None:
        self._stop = anyio.Event()
        async with anyio.create_task_group() as self._tasks:
            task_status.started()
            await self._stop.wait()
            self._tasks.cancel_scope.cancel()

    async def _start(self, jobs: list[Callable[[], Awaitable[Any]]], futures: list[Future[Any]]) -> None:
        for job, future in zip(jobs, futures, strict=True):
            self._tasks.start_soon(self._run, job, future)

    async def _run(self, job: Callable[[], Awaitable[Any]], future: Future[Any] | None) -> None:
        outcome: Any = None
        error: BaseException | None = None
        try:
            outcome = await job()
        except anyio.get_cancelled_exc_class():
            self._settle(future, None, closed_in_call())
            raise
        except BaseException as raised:
            error = raised
        self._settle(future, outcome, error)

    def _settle(self, future: Future[Any] | None, outcome: Any, error: BaseException | None) -> None:
        if future is None:
            return
        self._open.discard(future)
        if future.done():
            return
        if error is None:
            future.set_result(outcome)
        else:
            future.set_exception(error)
