"""How an environment comes to be, wherever its class wants its code to run.

A factory that is a class tells where before anything is built. Any other tells it with the first environment that it
gives.
"""

from __future__ import annotations

import logging
from asyncio import CancelledError
from dataclasses import dataclass
from typing import cast

from openenv_trl.environment import prepare
from openenv_trl.errors import EnvironmentFactoryError
from openenv_trl.server.call_failure import ENDS_PROGRAMS
from openenv_trl.server.execution import Executor, Placement, placement_of
from openenv_trl.server.hooks import (
    AnyEnvironment,
    EnvironmentFactory,
    Hooks,
    class_behind,
    factory_name,
    hooks_of,
)
from openenv_trl.server.process_environment import build_in_process
from openenv_trl.server.process_launcher import ProcessLauncher
from openenv_trl.server.settings import Execution
from openenv_trl.types import ServerMode, Tool

logger = logging.getLogger("openenv_trl.server")


@dataclass(slots=True)
class Built:
    """An environment, ready to be called."""

    environment: AnyEnvironment
    hooks: Hooks
    placement: Placement
    tools: list[Tool]


class EnvironmentBuilder:
    """Builds the environments of one server.

    Args:
        factory: Gives one environment.
        executor: The threads.
        execution: Where all of them run; as their class says if None.

    Raises:
        ConfigurationError: They are to run in processes, and the factory cannot be sent to one.

    Attributes:
        mode: What the server is for; each environment is told.
    """

    def __init__(self, factory: EnvironmentFactory, executor: Executor, execution: Execution | None) -> None:
        self.mode = ServerMode.SIMULATION
        self._factory = factory
        self._executor = executor
        known = class_behind(factory)
        self._execution: Execution | None = execution or (known.EXECUTION if known is not None else None)
        self._launcher = ProcessLauncher(factory) if self._execution == "process" else None

    async def warm_up(self) -> None:
        """Begin what makes the first environment slow to come."""
        if self._launcher is not None:
            await self._executor.run(self._launcher.warm_up)

    @property
    def name(self) -> str:
        """The name by which errors call the factory."""
        return factory_name(self._factory)

    async def build(self) -> Built:
        """Build an environment.

        Raises:
            EnvironmentFactoryError: The factory raised; the log has its traceback.
        """
        if self._launcher is not None:
            return await self._build_there(self._launcher)
        if self._execution == "loop":
            return self._built(self._build_here())
        call = self._executor.lend(self._build_here)
        try:
            environment = await call.finished()
        except CancelledError:
            call.abandon(lambda: _close(call.value))
            raise
        known, built = self._execution, self._built(environment)
        if known is None and built.hooks.execution == "process":  # which only an environment could tell
            await self._executor.run(environment.close)
            self._launcher = ProcessLauncher(self._factory)
            return await self._build_there(self._launcher)
        return built

    async def _build_there(self, launcher: ProcessLauncher) -> Built:
        environment = await build_in_process(launcher, self._factory, self._executor, self.mode)
        # It has what is called of an environment; being one would give it an environment's own code.
        stand_in = cast("AnyEnvironment", environment)
        placement = placement_of(environment.hooks, "process")
        return Built(stand_in, environment.hooks, placement, environment.introduction.tools)

    def _build_here(self) -> AnyEnvironment:
        try:
            environment = self._factory()
            prepare(environment, self.mode, self._execution)
            return environment
        except (Exception, *ENDS_PROGRAMS) as error:  # boundary: a constructor may raise anything
            logger.exception("The environment factory '%s' raised", self.name)
            raise EnvironmentFactoryError(self.name) from error

    def _built(self, environment: AnyEnvironment) -> Built:
        hooks = hooks_of(type(environment))
        if not hooks.single_thread:
            self._executor.loosen()
        execution = self._execution = self._execution or hooks.execution
        return Built(environment, hooks, placement_of(hooks, execution), environment.offered_tools())


def _close(environment: AnyEnvironment | None) -> None:
    if environment is not None:
        environment.close()
