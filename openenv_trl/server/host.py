"""The sessions of one server: slots, threads, and how an environment is built and asked about itself.

Nothing here knows of sockets. A transport opens a session, calls it, and closes it; every transport shares the slots.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio

from openenv_trl.environment import default_metadata, prepare
from openenv_trl.errors import EnvironmentFactoryError
from openenv_trl.server.capacity import CapacityLedger
from openenv_trl.server.execution import Executor
from openenv_trl.server.hooks import AnyEnvironment, EnvironmentFactory, class_behind, factory_name
from openenv_trl.server.hosted_session import HostedSession
from openenv_trl.server.metrics import ServerMetrics
from openenv_trl.server.session import Session
from openenv_trl.types import Action, EnvironmentMetadata, ServerMode

logger = logging.getLogger("openenv_trl.server")


class SessionHost:
    """Opens sessions, within the limit.

    Args:
        factory: Builds one environment; it runs off the event loop.
        action_cls: What the data of a step must fit.
        ledger: The slots.
        executor: Where environments are built, closed, and called by those of their hooks that may block.
    """

    def __init__(
        self,
        factory: EnvironmentFactory,
        action_cls: type[Action],
        ledger: CapacityLedger,
        executor: Executor,
    ) -> None:
        self.action_cls = action_cls
        self.ledger = ledger
        self.executor = executor
        self.metrics = ServerMetrics()
        self._factory = factory
        self._metadata: EnvironmentMetadata | None = None
        self._told_of: set[str] = set()

    @asynccontextmanager
    async def session(self) -> AsyncGenerator[HostedSession]:
        """Hold a session: a slot, then an environment. Both are given back at the end, whatever happens.

        Raises:
            SessionCapacityError: No slot is free.
            EnvironmentFactoryError: The factory raised.
        """
        hosted = HostedSession(self, Session(str(uuid.uuid4()), time.monotonic()))
        self.ledger.reserve(hosted.session_id)
        try:
            await hosted.open()
            yield hosted
        finally:
            with anyio.CancelScope(shield=True):
                await hosted.close()

    async def metadata(self) -> EnvironmentMetadata:
        """Return what the environment says of itself. Where the class speaks for itself, an instance is built once.

        Raises:
            EnvironmentFactoryError: The factory raised.
        """
        if self._metadata is None:
            known = class_behind(self._factory)
            if known is not None and known.get_metadata is AnyEnvironment.get_metadata:
                self._metadata = default_metadata(known)
            else:
                self._metadata = await self.executor.run(self._ask_a_new_instance)
        return self._metadata

    def shut_down(self) -> None:
        """Let go of the threads."""
        self.executor.shut_down()

    def build(self) -> AnyEnvironment:
        """Build an environment (blocking).

        Raises:
            EnvironmentFactoryError: The factory raised; the log has its traceback.
        """
        try:
            environment = self._factory()
            prepare(environment, self.mode)
            return environment
        except Exception as error:  # boundary: a constructor may raise anything
            name = factory_name(self._factory)
            logger.exception("The environment factory '%s' raised", name)
            raise EnvironmentFactoryError(name) from error

    def warn_of_dropped(self, environment: AnyEnvironment, arguments: set[str], taken: frozenset[str]) -> None:
        """Tell the log, once for each name, of reset arguments that the environment does not take."""
        for name in sorted(arguments - self._told_of):
            self._told_of.add(name)
            logger.warning(
                "reset of %s takes no argument '%s': it is dropped. The arguments it takes are: %s.",
                type(environment).__name__,
                name,
                ", ".join(sorted(taken)) or "none",
            )

    def _ask_a_new_instance(self) -> EnvironmentMetadata:
        environment: Any = self.build()
        try:
            return environment.get_metadata()
        finally:
            environment.close()
