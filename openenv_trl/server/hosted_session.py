"""One session with its environment: the async shell that does what the pure `Session` decides.

Promises: calls on the environment never overlap, and wait for each other in the order they came; ``close`` is called
once on an environment that was built, after its last call; the slot is released once. What an environment raises
reaches the caller as `EnvironmentExecutionError` (or, out of a step, as the `ActionValidationError` that it raised
itself), never as a fault of the server or the caller. A call past its deadline ends with its session: an asynchronous
hook is cancelled, a process killed, a thread left behind (it closes the environment when it returns at last).

A call whose hook does not suspend does not suspend either.
"""

from __future__ import annotations

import inspect
import logging
from asyncio import CancelledError, Task, current_task, get_running_loop
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Any, cast

import anyio
from pydantic import BaseModel, ValidationError

from openenv_trl.errors import (
    ActionValidationError,
    DeadlineExceededError,
    EnvironmentExecutionError,
    OpenEnvError,
    SessionLostError,
)
from openenv_trl.server.alarm import Alarm
from openenv_trl.server.execution import Placement, Where
from openenv_trl.server.hooks import AnyEnvironment, Hooks
from openenv_trl.server.logs import about
from openenv_trl.server.own_loop import OwnLoop
from openenv_trl.server.process_environment import ProcessEnvironment, WorkerDiedError
from openenv_trl.server.session import Decision, Session, SessionEnd, SessionState
from openenv_trl.server.turns import Turns
from openenv_trl.server.worker_threads import ThreadCall
from openenv_trl.types import Action, CallToolAction, Observation, Tool
from openenv_trl.wire.field_errors import error_list
from openenv_trl.wire.model_values import dump_model
from openenv_trl.wire.tools import ListToolsObservation

if TYPE_CHECKING:
    from openenv_trl.server.host import SessionHost

logger = logging.getLogger("openenv_trl.server")

_AGAIN_S = 5.0  # before a hook that goes on after it was cancelled is cancelled again
_CLOSE_GRACE_S = 30.0  # for an environment's close, before its slot is free without it

# Looked up at each call; an enum's members cost more where they stand.
_BUSY, _GO_ON = SessionState.BUSY, Decision.GO_ON
_THREAD, _AWAITED = Where.THREAD, Where.AWAITED


class HostedSession:
    """A session whose environment lives in this process, or in one of this process's own.

    Attributes:
        session: The state machine.
        session_id: The session's name.
        transport: What it was opened over.
        episode_id: The name that its client gave the running episode, or None.
        on_end: Called once on the event loop when the session has ended, whoever ended it; ``session.end`` says why.
    """

    __slots__ = (
        "_alarm",
        "_cancellations",
        "_environment",
        "_hooks",
        "_host",
        "_interruption",
        "_own_loop",
        "_placement",
        "_task",
        "_thread_call",
        "_tools",
        "_turns",
        "_watchers",
        "episode_id",
        "on_end",
        "session",
        "session_id",
        "transport",
    )

    def __init__(self, host: SessionHost, session: Session, transport: str) -> None:
        self.session = session
        self.session_id = session.session_id
        self.transport = transport
        self.episode_id: str | None = None
        self.on_end: Callable[[], None] | None = None
        self._host = host
        self._tools: list[Tool] = []
        self._environment: AnyEnvironment | None = None
        self._hooks: Hooks | None = None
        self._placement: Placement | None = None
        self._own_loop: OwnLoop | None = None
        self._turns: Turns | None = None
        self._watchers: list[Callable[[], None]] | None = None
        self._alarm: Alarm | None = None
        self._task: Task[Any] | None = None
        self._thread_call: ThreadCall[Any] | None = None
        self._interruption: tuple[SessionEnd, str, OpenEnvError] | None = None
        self._cancellations = 0

    async def open(self) -> None:
        """Build the environment.

        Raises:
            EnvironmentFactoryError: The factory raised. The slot is free again.
        """
        try:
            built = await self._host.builder.build()
            self._hooks, self._placement, self._tools = built.hooks, built.placement, built.tools
            if built.placement.in_own_loop:
                self._own_loop = OwnLoop()
            self._environment = built.environment
            if isinstance(built.environment, ProcessEnvironment):
                built.environment.on_death = self._process_died
                if built.environment.is_dead:
                    self._process_died()
        finally:
            if self._environment is None:
                await self._carry_out(self.session.open_failed())
            else:
                await self._carry_out(self.session.opened(monotonic()))

    async def close(self) -> None:
        """End the session: at once, or as soon as its running call is over."""
        await self._carry_out(self.session.request_close())

    async def lose(self, end: SessionEnd, because: str) -> None:
        """End the session, at once or after its running call, though its client did not ask for it.

        Args:
            end: The kind of end.
            because: Completes "Session ... is lost: ".
        """
        await self._carry_out(self.session.lose(end, because))

    def cancel_call(self) -> None:
        """Stop the call that runs, and end the session with it; nothing where none runs."""
        call = self.session.call
        if call:
            self._stop_call(SessionEnd.CANCELLED, f"its {call} was cancelled by its client")

    async def stop(self, end: SessionEnd, because: str) -> None:
        """Like `lose`, without waiting for a call that runs: it is stopped."""
        if self.session.call:
            self._stop_call(end, because)
        await self.lose(end, because)

    def watch_end(self, callback: Callable[[], None]) -> None:
        """Have the callback called once when the session has ended: for those who share it, beside ``on_end``."""
        if self._watchers is None:
            self._watchers = []
        self._watchers.append(callback)

    @property
    def tools(self) -> list[Tool]:
        """The tools that the environment offers here and now."""
        environment = self._environment
        if environment is not None and self.lists_tools_itself and self.worker_pid is None:
            return environment.offered_tools()
        return self._tools

    @property
    def host(self) -> SessionHost:
        """Whose session it is."""
        return self._host

    @property
    def environment_name(self) -> str:
        """The environment class's name."""
        return self._name

    @property
    def lists_tools_itself(self) -> bool:
        """Whether the environment has a method that says more of its tools than `tools` (``listed_tools``)."""
        return self._hooks is not None and self._hooks.tool_calls_are_steps

    @property
    def acts_by_tools(self) -> bool:
        """Whether the environment's agent can act by tools."""
        return bool(self._tools) or self.lists_tools_itself

    @property
    def is_over(self) -> bool:
        """Whether the session has ended."""
        return not self.session.holds_slot

    @property
    def is_waited_for(self) -> bool:
        """Whether callers wait for the running call to end."""
        return bool(self._turns)

    @property
    def worker_pid(self) -> int | None:
        """The process that the environment lives in; None where it is this one."""
        return getattr(self._environment, "worker_pid", None)

    async def reset(self, arguments: dict[str, Any], *, deadline_s: float | None = None) -> Observation:
        """Begin an episode with those of the arguments that the environment's ``reset`` takes.

        Args:
            arguments: The arguments by name.
            deadline_s: Seconds that the caller waits.

        Raises:
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
            raise self._failure("step", "step", error) from error

    def _opened(self, call: str) -> tuple[AnyEnvironment, Hooks, Placement]:
        environment, hooks, placement = self._environment, self._hooks, self._placement
        if environment is None or hooks is None or placement is None:
            self.session.begin(call)  # raises: the session knows why there is no environment
            raise AssertionError("a session that is open has an environment")
        return environment, hooks, placement

    # ------------------------------------------------------------------ one call

    async def _call(
        self,
        call: str,
        where: Where,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        deadline_s: float | None,
        expected: type[Any] | None,
        tool: str = "",
    ) -> Any:
        session, host = self.session, self._host
        begun_at = monotonic()
        if host.step_timeout_s is not None and (deadline_s is None or host.step_timeout_s < deadline_s):
            deadline_s = host.step_timeout_s
        if session.state is _BUSY or self._turns:
            await self._turn(call, deadline_s)
        session.begin(call)
        if deadline_s is not None:
            self._set_deadline(begun_at + deadline_s)
        done, outcome = None, "error"
        try:
            if where is _THREAD:
                value = await self._in_thread(function, args, kwargs)
            else:
                value = function(*args, **kwargs)
                if where is _AWAITED:
                    self._task = current_task()
                    value = await value
            if expected is None and inspect.isawaitable(value):  # of a tool whose method does not look asynchronous
                self._task = current_task()
                value = await value
            if self._interruption is not None:
                raise CancelledError  # which the hook kept to itself
            if expected is not None and not isinstance(value, expected):
                raise TypeError(_unexpected(value, call, expected, self._hooks))
            if isinstance(value, Observation):
                done = value.done
            outcome = "ok"
            return value
        except BaseException as error:  # boundary: an environment may raise anything
            outcome, shown = self._outcome(call, tool, error)
            if shown is error:
                raise
            raise shown from (None if self._interruption else error)
        finally:
            self._task = None
            if self._alarm is not None:
                self._alarm.clear()
            now = monotonic()
            host.metrics.call_finished(_KINDS.get(call, "tool"), outcome, now - begun_at)
            if session.state is _BUSY:  # else it was abandoned, and is still running in its thread
                decision = session.finish(now, done=done)
                if decision is not _GO_ON:
                    await self._carry_out(decision)
                elif done and host.draining:
                    host.dismiss(self)
            if self._turns:
                self._turns.pass_on()

    async def _in_thread(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        call = self._thread_call = self._lend(function, *args, **kwargs)
        try:
            return await call.finished()
        except CancelledError:
            # Not by a cancel scope, which cannot reach through the call's shield: the task itself is made to end.
            if self._interruption is None:
                because = "the task that waited for its call was cancelled"
                self._leave_behind(call, SessionEnd.CANCELLED, because)
            raise
        finally:
            self._thread_call = None

    def _lend(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> ThreadCall[Any]:
        executor = self._host.executor
        if self._own_loop is None:
            return executor.lend(function, *args, **kwargs)
        return executor.lend(self._own_loop.call, function, *args, **kwargs)

    async def _turn(self, call: str, deadline_s: float | None) -> None:
        if self._turns is None:
            self._turns = Turns(lambda: self.session.is_resting)
        if not await self._turns.wait(deadline_s):
            raise DeadlineExceededError(
                f"Session {self.session_id}: its {self.session.call or 'last call'} still ran after {deadline_s:g} s, "
                f"so the {call} that waited for it was not begun.",
                phase=call,
                session_id=self.session_id,
            )

    def _set_deadline(self, deadline: float) -> None:
        if self._alarm is None:
            self._alarm = Alarm(self._deadline_passed)
        self._alarm.set(deadline)

    def _deadline_passed(self) -> None:
        if self._interruption is not None:
            if self._task is not None:
                self._cancel(self._task)  # its hook kept the last cancellation to itself
            return
        call = self.session.call
        text = f"Session {self.session_id}: its {call} took longer than its deadline, and the session ended with it."
        if self._thread_call is not None:
            text += ' Its thread cannot be stopped: set EXECUTION = "process" on the environment to have it killed.'
        error = DeadlineExceededError(text, phase=call, session_id=self.session_id)
        self._interrupt(SessionEnd.DEADLINE, f"its {call} passed its deadline", error)

    def _stop_call(self, end: SessionEnd, because: str) -> None:
        if self._interruption is None:
            text = f"Session {self.session_id} is lost: {because}. Open a new one."
            error = SessionLostError(text, phase=self.session.call, session_id=self.session_id)
            self._interrupt(end, because, error)

    def _interrupt(self, end: SessionEnd, because: str, error: OpenEnvError) -> None:
        self._interruption = (end, because, error)
        if self._thread_call is not None:
            self._leave_behind(self._thread_call, end, because)
        elif self._task is not None:
            self._cancel(self._task)

    def _cancel(self, task: Task[Any]) -> None:
        # Not with a cancel scope, which costs each call more than all the rest of this module.
        self._cancellations += 1
        task.cancel()
        self._set_deadline(monotonic() + _AGAIN_S)

    def _leave_behind(self, call: ThreadCall[Any], end: SessionEnd, because: str) -> None:
        loop = get_running_loop()

        def orphaned() -> None:
            try:
                self._close_in_thread()
            except Exception:  # boundary: a session ends, however badly its environment does
                text = "close of %s raised after its abandoned call"
                logger.exception(text, self._name, extra=self.about("close"))
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._orphan_closed)

        if call.abandon(orphaned):
            self._host.call_was_abandoned(self._name, self.session_id, self.session.call)
            self._release(self.session.abandon(end, because))

    def _orphan_closed(self) -> None:
        self.session.finish(monotonic())
        self.session.closed()
        self._environment = None

    def _outcome(self, call: str, tool: str, error: BaseException) -> tuple[str, BaseException]:
        """What a call's failure counts as, and what its caller is told."""
        if self._interruption is not None:
            end, because, shown = self._interruption
            uncancel = getattr(self._task, "uncancel", _nothing)  # from Python 3.11 on, cancellations are counted
            for _ in range(self._cancellations):
                uncancel()
            if self.session.state is _BUSY:
                self.session.lose(end, because)
            return end.value, shown
        if isinstance(error, CancelledError):
            return "cancelled", error
        if isinstance(error, WorkerDiedError):
            self.session.lose(SessionEnd.WORKER_DIED, str(error))
            return "lost", self.session.lost(call) or error
        if not isinstance(error, Exception) and not isinstance(error, SystemExit):
            return "error", error
        if isinstance(error, ActionValidationError) and (call == "step" or tool):
            return "invalid", error
        return "error", self._failure(f"tool '{tool}'" if tool else call, call, error)

    def _failure(self, where: str, call: str, error: BaseException) -> Exception:
        if call == "step" and isinstance(error, ActionValidationError):
            return error
        logger.error("%s raised in session %s", where, self.session_id, exc_info=error, extra=self.about(call))
        return EnvironmentExecutionError(str(error) or type(error).__name__, phase=where, session_id=self.session_id)

    # ------------------------------------------------------------------ the end

    async def _carry_out(self, decision: Decision) -> None:
        if decision is Decision.CLOSE_ENVIRONMENT:
            with anyio.CancelScope(shield=True):
                await self._close_environment()
        else:
            self._release(decision)

    async def _close_environment(self) -> None:
        assert self._placement is not None, "only an environment that was built is closed"
        call = None
        try:
            with anyio.move_on_after(_CLOSE_GRACE_S):
                if self._placement.close is _THREAD:
                    call = self._host.executor.lend(self._close_in_thread)
                    result = await call.future
                else:
                    result = self._close_hook()()
                if inspect.isawaitable(result):
                    await result
        except Exception:  # boundary: a session ends, however badly its environment does
            text = "close of %s raised; its session %s ended"
            logger.exception(text, self._name, self.session_id, extra=self.about("close"))
        finally:
            if call is not None and call.abandon(_nothing):
                self._host.call_was_abandoned(self._name, self.session_id, "close")
            self._environment = None
            self._release(self.session.closed())

    def _process_died(self) -> None:
        self._host.nursery.start(self._bury)

    async def _bury(self) -> None:
        environment: Any = self._environment
        if isinstance(environment, ProcessEnvironment):
            because = await environment.death()
            logger.error("Session %s is lost: %s", self.session_id, because, extra=self.about())
            await self.lose(SessionEnd.WORKER_DIED, because)

    def _close_in_thread(self) -> Any:
        if self._own_loop is None:
            return self._close_hook()()
        try:
            return self._own_loop.call(self._close_hook())
        finally:
            self._own_loop.close()

    def _close_hook(self) -> Callable[..., Any]:
        return getattr(self._environment, "close", _nothing)

    def _release(self, decision: Decision) -> None:
        if decision is not Decision.RELEASE_SLOT:
            return
        if self._alarm is not None:
            self._alarm.stop()
        self._host.forget(self)
        if self._turns:
            self._turns.pass_on()
        if self.on_end is not None:
            self.on_end()
        for each in self._watchers or ():
            each()

    def about(self, call: str = "") -> dict[str, str]:
        """Return the ``extra`` of a log record that concerns this session."""
        return about(self.session_id, episode_id=self.episode_id, call=call, transport=self.transport)

    @property
    def _name(self) -> str:
        return self._hooks.name if self._hooks is not None else "the environment"


def _nothing() -> None:
    pass


_NO_ARGUMENTS: dict[str, Any] = {}
_KINDS = {"reset": "reset", "step": "step", "state": "state"}


def _unexpected(value: object, call: str, expected: type[Any], hooks: Hooks | None) -> str:
    name = hooks.name if hooks is not None else "the environment"
    if expected is BaseModel:
        return f"state of {name} is a {type(value).__name__}, not a State"
    return f"{call} of {name} returned a {type(value).__name__}, not an Observation"
