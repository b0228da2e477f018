"""Follows one engine's events and the output of one provider's containers, also past a restart of the engine."""

from __future__ import annotations

import contextlib
import json
import math
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import anyio
import anyio.abc
import anyio.lowlevel

from openenv_trl.errors import ProviderError
from openenv_trl.providers.docker.connection import EngineConnection
from openenv_trl.providers.docker.container_state import ENGINE_WENT, ContainerState, OutputLines
from openenv_trl.providers.logs import logger
from openenv_trl.providers.owner import OWNER_LABEL

# Events from before the beginning are asked for as well, so that clocks may differ; those of unknown containers and
# those that came already are passed over.
_LOOK_BACK_S = 60
_OUTPUT_AFTER_DEATH_S = 2.0
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 2.0
_LATE_EVENTS_S = 1.0
# An engine that is stopped ends its containers first, as if somebody had asked for it; so does one that finds those of
# an engine that was killed.
_ENGINE_MAY_GO_S = 3.0


class EngineWatch:
    """Tells as soon as a container dies.

    Args:
        connection: The engine.
        owner: The id of the owner of the containers.
        on_death: Called once for each container that dies, when its output is complete.
        on_lines: Called with a replica's name and lines that it has written; it must not take long.
    """

    def __init__(
        self,
        connection: EngineConnection,
        owner: str,
        on_death: Callable[[ContainerState], None],
        on_lines: Callable[..., None],
    ) -> None:
        self.containers: dict[str, ContainerState] = {}
        """By the engine's id."""
        self.listening = False
        """Whether the engine's events are read just now, as far as is known."""
        self._connection = connection
        self._owner = owner
        self._on_death = on_death
        self._on_lines = on_lines
        self._since = int(time.time()) - _LOOK_BACK_S
        self._broken = anyio.Event()
        self._survived: set[str] = set()
        self._back_at = -math.inf
        self._scope = anyio.CancelScope()
        self._running = anyio.Event()
        self._over = anyio.Event()
        self._tasks: anyio.abc.TaskGroup | None = None

    async def run(self) -> None:
        """Watches until `close`. To be run as a task of its own."""
        try:
            with self._scope:
                async with anyio.create_task_group() as self._tasks:
                    self._running.set()
                    await self._listen()
        finally:
            self._over.set()

    async def running(self) -> None:
        """Waits until it has begun."""
        await self._running.wait()

    async def close(self) -> None:
        """Ends it."""
        self._scope.cancel()
        if self._running.is_set():
            await self._over.wait()

    async def follow(self, state: ContainerState, container: Any) -> None:
        """Read a container's output from its very first line on; to be called before it is started."""
        stream = container.attach(stdout=True, stderr=True)
        with self._connection.call():
            await stream.__aenter__()
        assert self._tasks is not None
        self._tasks.start_soon(self._read_output, state, stream)

    def forget(self, container_id: str) -> None:
        """Take one off that was removed."""
        self.containers.pop(container_id, None)

    # The engine's events.

    async def _listen(self) -> None:
        pause_s = _FIRST_PAUSE_S
        while True:
            began = anyio.current_time()
            await self._read_events()
            self.listening = False
            self._broken.set()
            self._broken = anyio.Event()
            self._survived = set(self.containers)
            if anyio.current_time() - began > _LONGEST_PAUSE_S:
                pause_s = _FIRST_PAUSE_S
            logger.warning("The Docker engine at %s has closed its events; asking again", self._connection.address.url)
            while not await self._after_a_break():
                await anyio.sleep(pause_s)
                pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
            self._back_at = anyio.current_time()

    async def _read_events(self) -> None:
        filters = {
            "type": ["container"],
            "event": ["oom", "kill", "die", "destroy"],
            "label": [f"{OWNER_LABEL}={self._owner}"],
        }
        events = self._connection.docker.events
        subscription = events.subscribe(create_task=False)

        async def stream() -> None:
            try:
                with self._connection.call(None):
                    await events.run(since=self._since, filters=json.dumps(filters))
            except Exception as error:
                logger.debug("the events of the Docker engine ended: %s", error)

        async with anyio.create_task_group() as group:
            group.start_soon(stream)
            self.listening = True
            while (event := await subscription.get()) is not None:
                actor = event.get("Actor", {})
                state = self.containers.get(actor.get("ID", ""))
                if state is not None and state.take_event(event.get("Action", ""), actor.get("Attributes", {})):
                    self._settle_soon(state)

    def _settle_soon(self, state: ContainerState) -> None:
        assert self._tasks is not None
        self._tasks.start_soon(self._settle, state)

    async def _settle(self, state: ContainerState) -> None:
        """The engine tells of a death a moment before the last lines are here."""
        if state.ended_from_outside and state.reason != ENGINE_WENT and not state.removing:
            if self._ended_by_a_new_engine(state):
                state.reason = ENGINE_WENT
            else:
                with anyio.move_on_after(_ENGINE_MAY_GO_S):
                    await self._broken.wait()
                    state.reason = ENGINE_WENT
        with anyio.move_on_after(_OUTPUT_AFTER_DEATH_S):
            await state.output_over.wait()
        self._on_death(state)

    def _ended_by_a_new_engine(self, state: ContainerState) -> bool:
        """An engine that was killed leaves its containers running; the next one ends them as it begins."""
        return state.id in self._survived and anyio.current_time() - self._back_at < _ENGINE_MAY_GO_S

    # A break.

    async def _after_a_break(self) -> bool:
        """Look at what became of the containers; returns whether the engine answers again."""
        filters = json.dumps({"label": [f"{OWNER_LABEL}={self._owner}"]})
        try:
            with self._connection.call(_LONGEST_PAUSE_S * 2):
                there = await self._connection.docker.containers.list(all=True, filters=filters)
        except Exception as error:
            logger.debug("the Docker engine is still away: %s", error)
            await self._look_without_engine()
            return False
        running = {each.id for each in there if each["State"] == "running"}
        for state in list(self.containers.values()):
            if state.id in running and state.output_over.is_set():
                self._follow_again(state)
        assert self._tasks is not None
        lost = [state for state in self.containers.values() if state.id not in running and not state.died.is_set()]
        self._tasks.start_soon(self._give_up, lost)
        return True

    async def _give_up(self, lost: list[ContainerState]) -> None:
        """Those that do not run any more: their events tell how they ended, unless the engine was another one then."""
        with anyio.move_on_after(_LATE_EVENTS_S):
            for state in lost:
                await state.died.wait()
        for state in lost:
            if state.base_url and state.lose(ENGINE_WENT):
                self._settle_soon(state)

    async def _look_without_engine(self) -> None:
        """A container whose output has ended, and whose server takes no connection, is of no use to anyone."""
        for state in list(self.containers.values()):
            if not state.output_over.is_set() or state.died.is_set() or not state.base_url:
                continue
            parts = urlsplit(state.base_url)
            try:
                with anyio.fail_after(_LONGEST_PAUSE_S):
                    await (await anyio.connect_tcp(parts.hostname or "", parts.port or 80)).aclose()
            except (OSError, TimeoutError):
                if state.lose(ENGINE_WENT):
                    self._settle_soon(state)

    # Output.

    async def _read_output(self, state: ContainerState, stream: Any) -> None:
        lines = OutputLines()
        try:
            while (message := await stream.read_out()) is not None:
                self._write(state, lines.feed(message.stream, message.data))
                await anyio.lowlevel.checkpoint()  # there may be a next one always: others have their turn all the same
        except (OSError, ProviderError, RuntimeError) as error:
            logger.debug("the output of %s has ended: %s", state.name, error)
        except Exception as error:  # aiohttp's, when the engine goes
            logger.debug("the output of %s has ended: %s: %s", state.name, type(error).__name__, error)
        finally:
            self._write(state, lines.end())
            state.output_over.set()
            with anyio.CancelScope(shield=True), contextlib.suppress(Exception):
                await stream.close()

    def _follow_again(self, state: ContainerState) -> None:
        """Read on where the engine was restarted and has kept its containers."""
        state.output_over = anyio.Event()
        assert self._tasks is not None
        self._tasks.start_soon(self._read_log, state, int(time.time()))

    async def _read_log(self, state: ContainerState, since: int) -> None:
        lines = OutputLines()
        container = self._connection.docker.containers.container(state.id)
        try:
            async for text in container.log(stdout=True, stderr=True, follow=True, since=since):
                self._write(state, lines.feed(1, text.encode()))
                await anyio.lowlevel.checkpoint()
        except Exception as error:
            logger.debug("the output of %s has ended: %s", state.name, error)
        finally:
            self._write(state, lines.end())
            state.output_over.set()

    def _write(self, state: ContainerState, lines: list[str]) -> None:
        state.wrote(lines)
        self._on_lines(state.name, *lines)
