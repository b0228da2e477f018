"""The life of one session's environment: built, called one call at a time, closed.

The async shell that does what the pure `Session` decides. Promises: calls never overlap, and wait for each other in the
order they came; ``close`` is called once on an environment that was built, after its last call; the slot is released
once. A call past its deadline ends with its session: an asynchronous hook is cancelled, a process killed, a thread left
behind (it closes the environment when it returns at last).

A call whose hook does not suspend does not suspend either.
"""

from __future__ import annotations

import inspect
import logging
from asyncio import CancelledError, Task, current_task, get_running_loop
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Any

import anyio

from openenv_trl.alarm import Alarm
from openenv_trl.errors import (
    ActionValidationError,
    ConfigurationError,
    OpenEnvError,
    SessionLostError,
)
from openenv_trl.server.call_failure import (
    ENDS_PROGRAMS,
    deadline_passed,
    failure_of,
    is_of_environment,
    not_begun,
    unexpected,
)
from openenv_trl.server.execution import Placement, Where
from openenv_trl.server.hooks import AnyEnvironment, Hooks
from openenv_trl.server.logs import about
from openenv_trl.server.own_loop import OwnLoop
from openenv_trl.server.process_environment import ProcessEnvironment, WorkerDiedError
from openenv_trl.server.session import Decision, Session, SessionEnd, SessionState
from openenv_trl.server.turns import Turns
from openenv_trl.server.worker_threads import ThreadCall
from openenv_trl.types import Observation, Tool

if TYPE_CHECKING:
    from openenv_trl.server.host import SessionHost

logger = logging.getLogger("openenv_trl.server")

_AGAIN_S = 5.0  # before a hook that goes on after it was cancelled is cancelled again
_CANCELLATIONS = 2  # of a hook; then its slot is free without it
_CLOSE_GRACE_S = 30.0  # for an environment's close, before its slot is free without it

# Looked up at each call; an enum's members cost more where they stand.
_BUSY, _GO_ON = SessionState.BUSY, Decision.GO_ON
_THREAD, _AWAITED = Where.THREAD, Where.AWAITED
_KINDS = {"reset": "reset", "step": "step", "state": "state"}


class SessionLife:
    """A session from its opening to its end. See `HostedSession` for what can be asked of it meanwhile.

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
        "_limit_s",
        "_others_wait",
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
        self._others_wait = False
        self._limit_s = 0.0  # of the running call, where it has a deadline

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

    @property
    def interruption(self) -> OpenEnvError | None:
        """What the caller of a call that was stopped is told; None where none was."""
        return self._interruption[2] if self._interruption is not None else None

    async def stop(self, end: SessionEnd, because: str) -> None:
        """Like `lose`, without waiting for a call that runs: it is stopped."""
        if self.session.call:
            self._stop_call(end, because)
        await self.lose(end, because)

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
            self._limit_s = deadline_s
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
                raise TypeError(unexpected(value, call, expected, self._name))
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
            task, self._task = self._task, None
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
            elif task is not None and session.state is SessionState.ABANDONED:  # it has ended at last
                await self._carry_out(session.finish(now))
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
            raise not_begun(call, self.session.call, deadline_s, self.session_id)

    def _set_deadline(self, deadline: float) -> None:
        if self._alarm is None:
            self._alarm = Alarm(self._deadline_passed)
        self._alarm.set(deadline)

    def _deadline_passed(self) -> None:
        if self._interruption is not None:
            if self._cancellations >= _CANCELLATIONS:
                self._leave_running(*self._interruption[:2])
            elif self._task is not None:
                self._cancel(self._task)  # its hook kept the last cancellation to itself
            return
        call = self.session.call
        in_thread, by_setting = self._thread_call is not None, self._limit_s == self._host.step_timeout_s
        error = deadline_passed(call, self.session_id, self._limit_s, by_setting=by_setting, in_thread=in_thread)
        if not in_thread:  # a thread that is left behind is told of as such
            logger.warning("%s: %s", self._name, error, extra=self.about(call))
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

    def _leave_running(self, end: SessionEnd, because: str) -> None:
        call = self.session.call
        self._host.metrics.call_abandoned()
        text = "Session %s: the %s of %s goes on though it was cancelled: it must not catch CancelledError"
        logger.warning(text, self.session_id, call, self._name, extra=self.about(call))
        self._release(self.session.abandon(end, because))

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
            self._host.call_was_abandoned(self._name, self.session_id, self.about(self.session.call))
            self._release(self.session.abandon(end, because))

    def _orphan_closed(self) -> None:
        self._host.metrics.late_reply()
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
            if isinstance(self._environment, ProcessEnvironment):
                self.session.lose(SessionEnd.CANCELLED, f"its {call} was cancelled, and its process killed")
            return "cancelled", error
        if isinstance(error, WorkerDiedError):
            self.session.lose(SessionEnd.WORKER_DIED, str(error))
            return "lost", self.session.lost(call) or error
        if not is_of_environment(error):
            return "error", error
        if isinstance(error, ActionValidationError) and (call == "step" or tool):
            return "invalid", error
        where = f"tool '{tool}'" if tool else call
        counts_as = "invalid" if isinstance(error, ConfigurationError) else "error"
        return counts_as, failure_of(error, where, call, self.session_id, self.about(call))

    # ------------------------------------------------------------------ the end

    async def _carry_out(self, decision: Decision) -> None:
        if decision is not Decision.CLOSE_ENVIRONMENT:
            self._release(decision)
            return
        assert self._placement is not None, "only an environment that was built is closed"
        call: ThreadCall[Any] | None = None
        try:
            result = None
            if self._placement.close is _THREAD:
                call = self._host.executor.lend(self._close_in_thread)
            else:
                result = self._close_hook()()
            if call is not None or result is not None:  # else it is done, and a scope would cost more than all of it
                with anyio.move_on_after(_CLOSE_GRACE_S, shield=True):
                    if call is not None:
                        result = await call.future
                    if inspect.isawaitable(result):
                        await result
        except (Exception, *ENDS_PROGRAMS):  # boundary: a session ends, however badly its environment does
            text = "close of %s raised; its session %s ended"
            logger.exception(text, self._name, self.session_id, extra=self.about("close"))
        finally:
            if call is not None and call.abandon(_nothing):
                self._host.call_was_abandoned(self._name, self.session_id, self.about("close"))
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
        watchers, self._watchers = self._watchers, None
        for each in watchers or ():
            each()

    def about(self, call: str = "") -> dict[str, str]:
        """Return the ``extra`` of a log record that concerns this session."""
        return about(self.session_id, episode_id=self.episode_id, call=call, transport=self.transport)

    @property
    def _name(self) -> str:
        return self._hooks.name if self._hooks is not None else "the environment"


def _nothing() -> None:
    pass
