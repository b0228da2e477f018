"""One session with its environment: the async shell that does what the pure `Session` decides.

Promises: calls on the environment never overlap; ``close`` is called once on an environment that was built, after its
last call; the slot is released once, after that. What an environment raises reaches the caller as
`EnvironmentExecutionError` (or, out of a step, as the `ActionValidationError` that it raised itself), never as a fault
of the server or the caller.
"""

from __future__ import annotations

import inspect
import logging
import time
from typing import TYPE_CHECKING, Any, cast

import anyio
from pydantic import BaseModel, ValidationError

from openenv_trl.errors import ActionValidationError, EnvironmentExecutionError
from openenv_trl.server.hooks import AnyEnvironment, Hooks, hooks_of
from openenv_trl.server.session import Decision, Session
from openenv_trl.types import Action, CallToolAction, Observation, Tool
from openenv_trl.wire.faults import error_list
from openenv_trl.wire.tools import ListToolsObservation, observation_of_tool

if TYPE_CHECKING:
    from openenv_trl.server.host import SessionHost

logger = logging.getLogger("openenv_trl.server")


class HostedSession:
    """A session whose environment lives in this process."""

    def __init__(self, host: SessionHost, session: Session) -> None:
        self.session = session
        self.session_id = session.session_id
        self._host = host
        self._run = host.executor.run
        self._validate = host.action_cls.model_validate
        self._tools: list[Tool] = []
        self._environment: AnyEnvironment | None = None
        self._hooks: Hooks | None = None

    async def open(self) -> None:
        """Build the environment.

        Raises:
            EnvironmentFactoryError: The factory raised. The slot is free again.
        """
        try:
            await self._run(self._build)
        finally:
            if self._environment is None:
                await self._carry_out(self.session.open_failed())
            else:
                await self._carry_out(self.session.opened())

    async def close(self) -> None:
        """End the session: at once, or as soon as its running call is over."""
        await self._carry_out(self.session.request_close())

    @property
    def tools(self) -> list[Tool]:
        """The tools that the environment offers."""
        return self._tools

    async def reset(self, arguments: dict[str, Any]) -> Observation:
        """Begin an episode with those of the arguments that the environment's ``reset`` takes.

        Raises:
            EnvironmentExecutionError: The environment raised, or returned something that is no observation.
        """
        environment, hooks = self._opened()
        taken = hooks.reset_arguments
        if taken is not None and not taken.issuperset(arguments):
            self._host.warn_of_dropped(environment, arguments.keys() - taken, taken)
            arguments = {name: value for name, value in arguments.items() if name in taken}
        self.session.begin("reset")
        done = None
        try:
            if hooks.async_reset:
                observation = await environment.reset_async(**arguments)
            else:
                observation = await self._run(lambda: environment.reset(**arguments))
            done = _checked(observation, "reset", environment).done
            return observation
        except Exception as error:  # boundary: an environment may raise anything
            raise self._failure("reset", error) from error
        finally:
            await self._carry_out(self.session.finish(time.monotonic(), done=done))

    async def step(self, data: dict[str, Any]) -> Observation:
        """Take one step: the data are an action, or a call of one of the environment's tools.

        Raises:
            ActionValidationError: The data do not fit; or the environment itself said that the action is wrong.
            EnvironmentExecutionError: The environment raised, or returned something that is no observation.
        """
        environment, hooks = self._opened()
        if self._tools and self._is_about_tools(data):
            return await self._tool_step(data)
        action = self._parse(self._validate, data)
        self.session.begin("step")
        done = None
        try:
            if hooks.async_step:
                observation = await environment.step_async(action)
            else:
                observation = await self._run(environment.step, action)
            done = _checked(observation, "step", environment).done
            return observation
        except Exception as error:  # boundary: an environment may raise anything
            raise self._failure("step", error) from error
        finally:
            await self._carry_out(self.session.finish(time.monotonic(), done=done))

    async def state(self) -> dict[str, Any]:
        """Return the environment's state, read between two calls, never during one.

        Raises:
            EnvironmentExecutionError: The environment raised, or its state is no `State`.
        """
        environment, hooks = self._opened()
        self.session.begin("state")
        try:
            state: object = environment.state if hooks.async_step else await self._run(getattr, environment, "state")
            if not isinstance(state, BaseModel):
                raise TypeError(f"state of {type(environment).__name__} is a {type(state).__name__}, not a State")
            return state.model_dump()
        except Exception as error:  # boundary: an environment may raise anything
            raise self._failure("state", error) from error
        finally:
            await self._carry_out(self.session.finish(time.monotonic()))

    async def call_tool(self, name: str, arguments: dict[str, Any], *, call: str = "tool call") -> Any:
        """Call one of the environment's tools and return what its method returned.

        Raises:
            ActionValidationError: No such tool, or wrong arguments.
            EnvironmentExecutionError: The tool raised.
        """
        environment, hooks = self._opened()
        self.session.begin(call)
        done = None
        try:
            if name in hooks.async_tools:
                value = environment.call_tool(name, arguments)
            else:
                value = await self._run(environment.call_tool, name, arguments)
            if inspect.isawaitable(value):
                value = await value
            done = value.done if isinstance(value, Observation) else None
            return value
        except ActionValidationError as error:
            if not error.errors:
                error.errors = [{"type": "tool_call", "loc": ["tool_name"], "msg": str(error), "input": name}]
            raise
        except Exception as error:  # boundary: a tool may raise anything
            raise self._failure(f"tool '{name}'", error) from error
        finally:
            await self._carry_out(self.session.finish(time.monotonic(), done=done))

    def _is_about_tools(self, data: dict[str, Any]) -> bool:
        kind = data.get("type")
        if kind is None:
            return "tool_name" in data and issubclass(self._host.action_cls, CallToolAction)
        return kind in ("call_tool", "list_tools")

    async def _tool_step(self, data: dict[str, Any]) -> Observation:
        if data.get("type") == "list_tools":
            return ListToolsObservation(tools=self._tools)
        action = cast("CallToolAction", self._parse(CallToolAction.model_validate, data))
        value = await self.call_tool(action.tool_name, action.arguments, call="step")
        try:
            return observation_of_tool(action.tool_name, value)
        except TypeError as error:
            raise EnvironmentExecutionError(
                f"The tool '{action.tool_name}' was called, but its result cannot be sent: {error}", phase="step"
            ) from error

    def _parse(self, validate: Any, data: dict[str, Any]) -> Action:
        try:
            return validate(data)
        except ValidationError as error:
            raise ActionValidationError(
                "Invalid message", errors=error_list(error), session_id=self.session_id
            ) from error
        except Exception as error:  # boundary: a validator is the environment author's code
            raise self._failure("step", error) from error

    def _build(self) -> None:
        environment = self._host.build()
        self._hooks = hooks_of(type(environment))
        self._tools = environment.list_tools()
        # The last line: an environment that is not kept here would never be closed.
        self._environment = environment

    def _opened(self) -> tuple[AnyEnvironment, Hooks]:
        if self._environment is None or self._hooks is None:
            self.session.begin("call")  # raises: the session knows why there is no environment
            raise AssertionError("a session that is open has an environment")
        return self._environment, self._hooks

    async def _carry_out(self, decision: Decision) -> None:
        if decision is Decision.CLOSE_ENVIRONMENT:
            with anyio.CancelScope(shield=True):
                await self._close_environment()
            decision = self.session.closed()
        if decision is Decision.RELEASE_SLOT:
            self._host.ledger.release(self.session_id)

    async def _close_environment(self) -> None:
        environment, self._environment = self._environment, None
        close: Any = getattr(environment, "close", None)
        try:
            result = await self._run(close) if close is not None else None
            if inspect.isawaitable(result):
                await result
        except Exception:  # boundary: a session ends, however badly its environment does
            logger.exception("close of %s raised; its session %s ended", type(environment).__name__, self.session_id)

    def _failure(self, where: str, error: Exception) -> Exception:
        if where == "step" and isinstance(error, ActionValidationError):
            return error
        logger.error("%s raised in session %s", where, self.session_id, exc_info=error)
        return EnvironmentExecutionError(str(error) or type(error).__name__, phase=where, session_id=self.session_id)


def _checked(observation: Any, where: str, environment: AnyEnvironment) -> Observation:
    if not isinstance(observation, Observation):
        raise TypeError(
            f"{where} of {type(environment).__name__} returned a {type(observation).__name__}, not an Observation"
        )
    return observation
