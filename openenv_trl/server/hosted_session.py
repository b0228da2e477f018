"""What can be asked of one session's environment: to reset, to step, its state, its tools.

What an environment raises reaches the caller as `EnvironmentExecutionError`, never as a fault of the server or the
caller; unless it blames the caller itself, by a `ConfigurationError` or, out of a step, an `ActionValidationError`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from pydantic import BaseModel, ValidationError

from openenv_trl.errors import ActionValidationError
from openenv_trl.server.call_failure import failure_of
from openenv_trl.server.execution import Placement, Where
from openenv_trl.server.hooks import Hooks
from openenv_trl.server.session import SessionEnd, SessionState
from openenv_trl.server.session_life import SessionLife
from openenv_trl.types import Action, CallToolAction, Observation, Tool
from openenv_trl.wire.field_errors import error_list
from openenv_trl.wire.model_values import dump_model
from openenv_trl.wire.observations import says_that_others_wait
from openenv_trl.wire.tools import ListToolsObservation

if TYPE_CHECKING:
    from openenv_trl.server.host import SessionHost

_AWAITED = Where.AWAITED  # looked up at each call; an enum's members cost more where they stand
_NO_ARGUMENTS: dict[str, Any] = {}


class HostedSession(SessionLife):
    """A session whose environment lives in this process, or in one of this process's own."""

    __slots__ = ()

    @property
    def is_over(self) -> bool:
        """Whether the session has ended."""
        return not self.session.holds_slot

    def watch_end(self, callback: Callable[[], None]) -> None:
        """Have the callback called once when the session has ended: for those who share it, beside ``on_end``."""
        if self._watchers is None:
            self._watchers = []
        self._watchers.append(callback)

    def watch_end_no_more(self, callback: Callable[[], None]) -> None:
        """Forget a callback of `watch_end`: whoever gave it has left the session before its end."""
        if self._watchers is not None and callback in self._watchers:
            self._watchers.remove(callback)

    @property
    def host(self) -> SessionHost:
        """Whose session it is."""
        return self._host

    @property
    def environment_name(self) -> str:
        """The environment class's name."""
        return self._name

    @property
    def hooks(self) -> Hooks | None:
        """How the environment's class wants to be called; None before it is built."""
        return self._hooks

    @property
    def is_waited_for(self) -> bool:
        """Whether callers wait for the running call to end."""
        return bool(self._turns)

    @property
    def others_wait(self) -> bool:
        """Whether others wait for what this session does: its reset said so, and the episode is not over."""
        return self._others_wait and self.session.state in (SessionState.IN_EPISODE, SessionState.BUSY)

    @property
    def worker_pid(self) -> int | None:
        """The process that the environment lives in; None where it is this one."""
        return getattr(self._environment, "worker_pid", None)

    @property
    def tools(self) -> list[Tool]:
        """The tools that the environment offers here and now."""
        environment = self._environment
        if environment is not None and self.lists_tools_itself and self.worker_pid is None:
            return environment.offered_tools()
        return self._tools

    @property
    def lists_tools_itself(self) -> bool:
        """Whether the environment has a method that says more of its tools than `tools` (``listed_tools``)."""
        return self._hooks is not None and self._hooks.tool_calls_are_steps

    @property
    def acts_by_tools(self) -> bool:
        """Whether the environment's agent can act by tools."""
        return bool(self._tools) or self.lists_tools_itself

    async def reset(self, arguments: dict[str, Any], *, deadline_s: float | None = None) -> Observation:
        """Begin an episode with those of the arguments that the environment's ``reset`` takes.

        Args:
            arguments: The arguments by name.
            deadline_s: Seconds that the caller waits.

        Raises:
            ConfigurationError: The environment said that it cannot do what it was asked.
            EnvironmentExecutionError: The environment raised, or returned something that is no observation.
            DeadlineExceededError: It took longer than the deadline.
            SessionLostError: The session has ended, or the server is shutting down.
        """
        environment, hooks, placement = self._opened("reset")
        if self._host.draining:
            await self.lose(SessionEnd.DRAINED, "the server is shutting down")
        taken = hooks.reset_arguments
        if taken is not None and not taken.issuperset(arguments):
            self._host.warn_of_dropped(hooks.name, arguments.keys() - taken, taken)
            arguments = {name: value for name, value in arguments.items() if name in taken}
        hook = environment.reset_async if hooks.async_reset else environment.reset
        observation = await self._call("reset", placement.reset, hook, (), arguments, deadline_s, Observation)
        named = arguments.get("episode_id")
        self.episode_id = named if isinstance(named, str) else None
        self._others_wait = says_that_others_wait(observation.metadata)
        return observation

    async def step(
        self, data: dict[str, Any], *, deadline_s: float | None = None, arguments: dict[str, Any] | None = None
    ) -> Observation:
        """Take one step: the data are an action, or a call of one of the environment's tools.

        Args:
            data: The action's fields.
            deadline_s: Seconds that the caller waits.
            arguments: What else ``step`` is called with, as far as it takes that.

        Raises:
            ActionValidationError: The data do not fit; or the environment itself said that the action is wrong.
            ConfigurationError: The environment said that it cannot do what it was asked.
            EnvironmentExecutionError: The environment raised, or returned something that is no observation.
            DeadlineExceededError: It took longer than the deadline.
            SessionLostError: The session has ended.
        """
        environment, hooks, placement = self._opened("step")
        if hooks.tool_calls_are_steps:
            return await self._step_of_either_kind(data, deadline_s, arguments)
        if self._tools and self._is_about_tools(data):
            return await self._tool_step(data, deadline_s)
        action = self._parse(self._host.validate, data)
        hook = environment.step_async if hooks.async_step else environment.step
        taken = hooks.taken_by_step(arguments) if arguments else _NO_ARGUMENTS
        return await self._call("step", placement.step, hook, (action,), taken, deadline_s, Observation)

    async def state(self, *, deadline_s: float | None = None) -> dict[str, Any]:
        """Return the environment's state, read between two calls, never during one.

        Args:
            deadline_s: Seconds that the caller waits.

        Raises:
            ConfigurationError: The environment said that it cannot do what it was asked.
            EnvironmentExecutionError: The environment raised, or its state is no `State`.
            DeadlineExceededError: It took longer than the deadline.
            SessionLostError: The session has ended.
            TypeError: A serializer of the state's own raised; the text names the field.
        """
        environment, _, placement = self._opened("state")
        arguments = (environment, "state")
        found = await self._call("state", placement.state, getattr, arguments, _NO_ARGUMENTS, deadline_s, BaseModel)
        return dump_model(found, at="state")

    async def call_tool(
        self, name: str, arguments: dict[str, Any], *, call: str = "tool call", deadline_s: float | None = None
    ) -> Any:
        """Call one of the environment's tools and return what its method returned.

        Args:
            name: The tool.
            arguments: Its arguments by name.
            call: What the call counts as.
            deadline_s: Seconds that the caller waits.

        Raises:
            ActionValidationError: No such tool, or wrong arguments.
            ConfigurationError: The environment said that it cannot do what it was asked.
            EnvironmentExecutionError: The tool raised.
            DeadlineExceededError: It took longer than the deadline.
            SessionLostError: The session has ended.
        """
        environment, _, placement = self._opened(call)
        return await self._about_tool(call, placement, name, environment.call_tool, (name, arguments), deadline_s)

    async def call_method(self, method: str, *args: Any, deadline_s: float | None = None, **kwargs: Any) -> Any:
        """Call another of the environment's methods, where it may block, between two other calls.

        Args:
            method: The method's name.
            *args: Its arguments.
            deadline_s: Seconds that the caller waits.
            **kwargs: Its arguments by name.

        Raises:
            AttributeError: The environment has no such method.
            ConfigurationError: The environment said that it cannot do what it was asked.
            EnvironmentExecutionError: It raised; ``__cause__`` is what, where the environment lives in this process.
            DeadlineExceededError: It took longer than the deadline.
            SessionLostError: The session has ended.
        """
        environment, _, placement = self._opened(method)
        function: Callable[..., Any] = getattr(environment, method)
        where = placement.other
        if inspect.iscoroutinefunction(function) and not placement.in_own_loop:
            where = _AWAITED
        return await self._call(method, where, function, args, kwargs, deadline_s, None)

    def _is_about_tools(self, data: dict[str, Any]) -> bool:
        kind = data.get("type")
        if kind is None:
            return "tool_name" in data and issubclass(self._host.action_cls, CallToolAction)
        return kind in ("call_tool", "list_tools")

    async def _tool_step(self, data: dict[str, Any], deadline_s: float | None) -> Observation:
        if data.get("type") == "list_tools":
            return ListToolsObservation(tools=self._tools)
        environment, _, placement = self._opened("step")
        action = cast("CallToolAction", self._parse(CallToolAction.model_validate, data))
        return await self._about_tool("step", placement, action.tool_name, environment.tool_step, (action,), deadline_s)

    async def _about_tool(
        self,
        call: str,
        placement: Placement,
        name: str,
        hook: Callable[..., Any],
        given: tuple[Any, ...],
        deadline_s: float | None,
    ) -> Any:
        where = placement.tool(name)
        if where is not _AWAITED and self._environment is not None and self._environment.runs_on_loop(name):
            where = _AWAITED if not placement.in_own_loop else where
        try:
            return await self._call(call, where, hook, given, _NO_ARGUMENTS, deadline_s, None, name)
        except ActionValidationError as error:
            if not error.errors:
                error.errors = [{"type": "tool_call", "loc": ["tool_name"], "msg": str(error), "input": name}]
            raise

    async def _step_of_either_kind(
        self, data: dict[str, Any], deadline_s: float | None, arguments: dict[str, Any] | None
    ) -> Observation:
        """Take a step of an environment whose ``step`` takes the actions about tools too."""
        environment, hooks, placement = self._opened("step")
        action = self._parse(self._host.validate_any, data)
        where, hook = placement.step, environment.step_async if hooks.async_step else environment.step
        if hooks.async_step and placement.other is not _AWAITED and environment.step_may_block(action):
            where, hook = placement.other, environment.step
        taken = hooks.taken_by_step(arguments) if arguments else _NO_ARGUMENTS
        return await self._call("step", where, hook, (action,), taken, deadline_s, Observation)

    def _parse(self, validate: Any, data: dict[str, Any]) -> Action:
        try:
            return validate(data)
        except ValidationError as error:
            raise ActionValidationError(
                "Invalid message", errors=error_list(error), session_id=self.session_id
            ) from error
        except Exception as error:  # boundary: a validator is the environment author's code
            raise failure_of(error, "step", "step", self.session_id, self.about("step")) from error
