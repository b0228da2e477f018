"""Looks at the tasks of one owner: at once when the engine tells of a container's end, else every so often.

A manager tells of the containers on its own node only, and of no task at all; so all tasks are listed too. One list
serves all replicas, however many there are.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Generator

import anyio

from openenv_trl.errors import ProviderError
from openenv_trl.providers.logs import logger
from openenv_trl.providers.swarm.engine import SwarmEngine
from openenv_trl.providers.swarm.tasks import Task

_HURRY_PAUSE_S = 0.05
# The event of a container's end comes before its task's state says so.
_HURRY_S = 3.0
_RECONNECT_S = 1.0


class TaskWatch:
    """The tasks of one label, kept up to date.

    Args:
        engine: Whom to ask.
        label: The label of the services, ``name=value``.
        poll_s: Seconds between two looks, where nothing is told or waited for.
        on_look: Called with all tasks after each look.
    """

    def __init__(
        self, engine: SwarmEngine, label: str, poll_s: float, on_look: Callable[[list[Task]], Awaitable[None]]
    ) -> None:
        self._engine = engine
        self._label = label
        self._poll_s = poll_s
        self._on_look = on_look
        self._nudged = anyio.Event()
        self._looked = anyio.Event()
        self._waiting = 0
        self._hurry_until = float("-inf")
        self._silent: ProviderError | None = None
        self.tasks: list[Task] = []

    def of(self, service_id: str) -> list[Task]:
        """The tasks of one service, as of the last look."""
        return [task for task in self.tasks if task.service_id == service_id]

    @contextlib.contextmanager
    def hurrying(self) -> Generator[None]:
        """Within the block, looks follow one another quickly."""
        self._waiting += 1
        self._nudge()
        try:
            yield
        finally:
            self._waiting -= 1

    async def next_look(self) -> None:
        """Waits for the next look.

        Raises:
            ProviderError: The engine did not answer.
        """
        await self._looked.wait()
        if self._silent is not None:
            raise self._silent

    async def run(self) -> None:
        """Watches until cancelled."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._listen)
            while True:
                await self._look()
                with anyio.move_on_after(self._pause_s()):
                    await self._nudged.wait()
                self._nudged = anyio.Event()

    async def _look(self) -> None:
        try:
            self.tasks = await self._engine.tasks(self._label)
            await self._on_look(self.tasks)
            self._silent = None
        except ProviderError as error:
            # Servers go on without their manager; what has ended meanwhile is told when it answers again.
            if self._silent is None:
                logger.warning("%s", error)
            self._silent = error
        except Exception as error:
            # Without looks, those who wait for one would wait for ever.
            logger.exception("looking at the Swarm's tasks failed")
            self._silent = ProviderError(f"The Swarm's tasks cannot be read: {type(error).__name__}: {error}")
        looked, self._looked = self._looked, anyio.Event()
        looked.set()

    async def _listen(self) -> None:
        while True:
            try:
                await self._engine.listen(self._label, self._hurry)
            except ProviderError as error:
                logger.debug("%s", error)  # the next look tells of it
            self._nudge()
            await anyio.sleep(_RECONNECT_S)

    def _hurry(self) -> None:
        self._hurry_until = anyio.current_time() + _HURRY_S
        self._nudge()

    def _pause_s(self) -> float:
        hurries = self._silent is None and (self._waiting or anyio.current_time() < self._hurry_until)
        return _HURRY_PAUSE_S if hurries else self._poll_s

    def _nudge(self) -> None:
        self._nudged.set()
