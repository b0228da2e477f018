"""An environment in a process of its own, as the server sees it: every hook is awaited, none blocks.

Promises: no thread waits for the process; a cancelled call kills it with all that it started; its death is noticed at
once, in a call or between two, and told with its exit code.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import pickle
import signal
from collections.abc import Awaitable, Callable
from typing import Any, cast

import anyio

from openenv_trl.errors import (
    ActionValidationError,
    ConfigurationError,
    EnvironmentExecutionError,
    EnvironmentFactoryError,
)
from openenv_trl.server.execution import Executor
from openenv_trl.server.hooks import factory_name
from openenv_trl.server.process_frames import Call, Introduction, Raised, Returned, Unpacker, pack
from openenv_trl.server.process_launcher import EnvironmentProcess, ProcessLauncher
from openenv_trl.types import EnvironmentMetadata, Observation, ServerMode

logger = logging.getLogger("openenv_trl.server")

_CLOSE_GRACE_S = 10.0  # for the environment's own close, before its process is killed

_EXIT_GRACE_S = 2.0  # for the process to end after that


class WorkerDiedError(Exception):
    """The environment's process has ended by itself. The text completes "Session ... is lost: "."""


class RemoteError(EnvironmentExecutionError):
    """The environment raised in its process; ``__cause__`` has that traceback."""


class ProcessEnvironment:
    """Stands for an environment that lives in a process. See `build_in_process`.

    Attributes:
        worker_pid: The process's id.
        hooks: The environment class's, as the caller here has to see them: all asynchronous.
        introduction: What the worker said of the environment.
        on_death: Called on the event loop when the process ends while no call runs.
    """

    def __init__(self, process: EnvironmentProcess, executor: Executor, line: _Line) -> None:
        self._process = process
        self._executor = executor
        self._line = line
        self._killed = False
        self.worker_pid = process.pid
        self.on_death: Callable[[], None] | None = None
        line.on_broken = self._broken

    async def introduce(self, name: str) -> None:
        """Wait for the environment to be built.

        Raises:
            EnvironmentFactoryError: The factory raised, or the process ended in it.
        """
        try:
            reply = await self._line.reply()
        except _LineBrokenError:
            logger.error("The environment factory '%s' ended its process: %s", name, await self.death())
            raise EnvironmentFactoryError(name) from None
        if isinstance(reply, Raised):
            logger.error("The environment factory '%s' raised\n%s", name, reply.trace)
            raise EnvironmentFactoryError(name)
        introduction: Introduction = reply.value
        self._own = introduction.hooks
        self.introduction = introduction
        self.hooks = dataclasses.replace(introduction.hooks, async_reset=True, async_step=True)

    async def reset_async(self, **arguments: Any) -> Observation:
        """See `Environment`."""
        return await self._ask("reset_async" if self._own.async_reset else "reset", **arguments)

    async def step_async(self, action: Any, **arguments: Any) -> Observation:
        """See `Environment`."""
        return await self._ask("step_async" if self._own.async_step else "step", action, **arguments)

    @property
    def state(self) -> Awaitable[Any]:
        """See `Environment`; to be awaited."""
        return self._ask("state")

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> Any:
        """See `Environment`."""
        return await self._ask("call_tool", name, arguments)

    async def get_metadata(self) -> EnvironmentMetadata:
        """See `Environment`."""
        return await self._ask("get_metadata")

    async def close(self) -> None:
        """Have the environment closed, within a grace, and the process ended."""
        try:
            if not self._killed and not self._line.is_broken:
                with anyio.move_on_after(_CLOSE_GRACE_S) as scope:
                    await self._ask("close")
                if scope.cancelled_caught:
                    logger.warning("close of %s took too long: its process was killed", self._own.name)
        except WorkerDiedError:
            pass  # it has ended itself
        finally:
            self._line.close()
            with anyio.CancelScope(shield=True):
                if not self._killed:  # with nobody to talk to it ends by itself, and what it started is left to us
                    await self._executor.run(self._process.exit_code, _EXIT_GRACE_S)
                self.kill()
                await self._executor.run(self._process.forget)

    @property
    def is_dead(self) -> bool:
        """Whether its process has ended."""
        return self._line.is_broken

    def kill(self) -> None:
        """End the process at once, with all that it started."""
        if not self._killed:
            self._killed = True
            self._process.kill()

    async def death(self) -> str:
        """Wait for the process's exit code, and say how it ended."""
        code = await self._executor.run(self._process.exit_code)
        if code is not None and code < 0:
            return f"its environment's process was killed by {signal.Signals(-code).name} (exit code {code})"
        return f"its environment's process ended with exit code {code}"

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        introduction = self.__dict__.get("introduction")
        if introduction is None or name not in introduction.methods:
            raise AttributeError(f"the environment has no method '{name}'")

        async def method(*args: Any, **kwargs: Any) -> Any:
            return await self._ask(name, *args, **kwargs)

        return method

    async def _ask(self, attribute: str, *args: Any, **kwargs: Any) -> Any:
        try:
            frame = pack(Call(attribute, args, kwargs))
        except Exception as error:  # boundary: pickling calls the code of whatever is in the arguments
            text = f"The arguments of {attribute} cannot be sent to the environment's process: {error}"
            raise EnvironmentExecutionError(text, phase=attribute) from error
        try:
            self._line.send(frame)
            reply = await self._line.reply()
        except _LineBrokenError:
            raise WorkerDiedError(f"{await self.death()} in {attribute}") from None
        except BaseException:  # cancelled: nobody waits, and the process cannot be asked anything else
            self.kill()
            raise
        if isinstance(reply, Returned):
            return reply.value
        if reply.errors is not None:
            raise ActionValidationError(reply.text, errors=reply.errors)
        if reply.is_configuration:
            raise ConfigurationError(reply.text, phase=attribute) from _RemoteTraceback(reply.trace)
        raise RemoteError(reply.text, phase=attribute) from _RemoteTraceback(reply.trace)

    def _broken(self) -> None:
        if not self._killed and self.on_death is not None:
            self.on_death()


async def build_in_process(
    launcher: ProcessLauncher, factory: Callable[[], Any], executor: Executor, mode: ServerMode
) -> ProcessEnvironment:
    """Start a process and build an environment in it. A caller that is cancelled meanwhile leaves no process.

    Raises:
        EnvironmentFactoryError: The factory raised, or the process ended in it.
        ConfigurationError: The process cannot be started; the text says what to change.
    """
    process = await executor.run(launcher.start, mode)
    line = _Line()
    await asyncio.get_running_loop().create_connection(lambda: line, sock=process.way)
    environment = ProcessEnvironment(process, executor, line)
    try:
        await environment.introduce(factory_name(factory))
    except BaseException:
        environment.kill()
        with anyio.CancelScope(shield=True):
            await environment.close()
        raise
    return environment


class _LineBrokenError(Exception):
    """The other end is gone."""


class _RemoteTraceback(Exception):
    """A traceback of the environment's process, to be shown with the exception that stands for its own."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


class _Line(asyncio.Protocol):
    """The server's end of the way to a worker: one reply at a time."""

    def __init__(self) -> None:
        self.is_broken = False
        self.on_broken: Callable[[], None] | None = None
        self._unpacker = Unpacker()
        self._transport: asyncio.Transport | None = None
        self._reply: asyncio.Future[bytes] | None = None
        self._early: bytes | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is one in all but name

    def data_received(self, data: bytes) -> None:
        whole = self._unpacker.feed(data)
        if whole is None:
            return
        if self._reply is not None and not self._reply.done():
            self._reply.set_result(whole)
        else:
            self._early = whole

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_broken = True
        if self._reply is not None and not self._reply.done():
            self._reply.set_exception(_LineBrokenError())
        elif self.on_broken is not None:
            self.on_broken()

    def send(self, frame: bytes) -> None:
        if self.is_broken or self._transport is None:
            raise _LineBrokenError
        self._transport.write(frame)

    async def reply(self) -> Returned | Raised:
        if self._early is None:
            if self.is_broken:
                raise _LineBrokenError
            self._reply = asyncio.get_running_loop().create_future()
            try:
                data = await self._reply
            finally:
                self._reply = None
        else:
            data, self._early = self._early, None
        return pickle.loads(data)

    def close(self) -> None:
        self.on_broken = None
        if self._transport is not None:
            self._transport.abort()
