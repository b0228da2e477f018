"""A pool of open sessions over servers: callers wait their turn and are not refused while they can wait.

`PoolState` decides; this carries the decisions out. The pool has no task of its own: a session is opened in the
task of the caller that asked, and the caller that is next in line minds the time for all. So nothing of it runs
on when its callers are gone.
"""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import ClassVar, Generic, Protocol, TypeVar

import anyio
import anyio.lowlevel
from typing_extensions import Self

from openenv_trl.chance import CHANCE
from openenv_trl.errors import ConfigurationError, OpenEnvError, SessionCapacityError, SessionStateError
from openenv_trl.providers.logs import logger
from openenv_trl.providers.pool_decisions import Abandon, Close, Connect, Decision, Grant, PoolMetrics
from openenv_trl.providers.pool_errors import closed_error
from openenv_trl.providers.pool_server import BackOff
from openenv_trl.providers.pool_state import PoolState
from openenv_trl.providers.server_identity import refuse_twins


class ClosableSession(Protocol):
    """What the pool needs of a session.

    Where it has an ``is_open`` too, an idle one that says no is not lent. Where it has an ``others_wait`` and says yes
    when it is given back, it is closed: an idle session would leave them waiting.
    """

    async def close(self) -> None:
        """Ends the session."""
        ...


SessionT = TypeVar("SessionT", bound=ClosableSession)

# Pools of many trainers that were refused together do not come back together.
_BACK_OFF = BackOff(jitter=0.5)


@dataclass(frozen=True, eq=False)
class Lease(Generic[SessionT]):
    """A session that is the caller's until it is released."""

    session: SessionT
    base_url: str
    number: int
    """The session's number in its pool."""


@dataclass(eq=False)
class _Waiter:
    """What one waiting caller is told."""

    opened: int | None = None
    """The session that its own attempt brought."""
    event: anyio.Event = field(default_factory=anyio.Event)
    grant: Grant | None = None
    error: OpenEnvError | None = None
    connect: Connect | None = None
    abandoned: bool = False
    """Whether its attempt is to be given up, whatever it brings."""
    scope: anyio.CancelScope | None = None


class SessionPool(Generic[SessionT]):
    """Sessions on several servers, opened when needed, lent, and used again.

    A server that refuses a session for lack of capacity makes callers wait, never fail: the pool keeps to what the
    server allowed, and tries for more now and then. One that does not answer is set aside for a while; callers go to
    the others. The least loaded server is asked first; callers are served in order. The pool belongs to one event loop.

    Args:
        base_urls: The servers' addresses.
        connect: Opens a session at an address. Raises SessionCapacityError when the server is full,
            ConnectionFailedError (or any OSError) when it does not answer; any other error goes to the caller at once.
        sessions_per_server: How many sessions to hold on each server at most.
        connect_timeout_s: Seconds after which an attempt to connect is given up and another server is tried.
        close_timeout_s: Seconds that the closing of a session may take before it is left to itself.
        server_patience_s: Seconds for which no server at all may answer before callers get a ConnectionFailedError,
            even if their own deadline is later: a restarting server comes back within that time, a wrong address never.

    Example:
        >>> pool = SessionPool(servers.base_urls, connect, sessions_per_server=16)
        >>> async with pool, pool.session(deadline_s=60) as session:
        ...     await session.reset(seed=1)
    """

    SERVERS_COME: ClassVar[bool] = False
    """Whether the pool may begin without a server."""

    def __init__(
        self,
        base_urls: Sequence[str],
        connect: Callable[[str], Awaitable[SessionT]],
        *,
        sessions_per_server: int,
        connect_timeout_s: float = 30.0,
        close_timeout_s: float = 2.0,
        server_patience_s: float = 30.0,
    ) -> None:
        if isinstance(base_urls, str):
            raise ConfigurationError(f"base_urls is the string {base_urls!r}; pass a list of addresses")
        if not base_urls and not self.SERVERS_COME:
            raise ConfigurationError("base_urls is empty; the pool needs the address of at least one server")
        refuse_twins(base_urls)
        if sessions_per_server < 1:
            raise ConfigurationError(f"sessions_per_server={sessions_per_server}; it must be at least 1")
        self._sessions_per_server = sessions_per_server
        self._connect = connect
        self._connect_timeout_s = connect_timeout_s
        self._close_timeout_s = close_timeout_s
        self._state = PoolState(
            base_urls,
            sessions_per_server,
            server_patience_s=server_patience_s,
            refused_back_off=_BACK_OFF,
            failed_back_off=_BACK_OFF,
            chance=CHANCE.random,
        )
        self._sessions: dict[int, SessionT] = {}
        self._waiters: dict[int, _Waiter] = {}
        self._told_head: int | None = None
        self._head_wakes_at = math.inf
        self._loop: object = None
        self._settled: anyio.Event | None = None

    def metrics(self) -> PoolMetrics:
        """The pool's counters and present numbers."""
        return self._state.metrics()

    async def acquire(self, timeout_s: float | None = None) -> Lease[SessionT]:
        """Waits for a session, and lends it until it is released.

        Args:
            timeout_s: Seconds to wait at most; None to wait as long as it takes.

        Raises:
            DeadlineExceededError: All sessions stayed in use; the message tells how many, and what to raise.
            ConnectionFailedError: No server answered, or opened a session, in all that time.
            SessionStateError: The pool is closed, or belongs to another event loop.
        """
        self._check_loop()
        await anyio.lowlevel.checkpoint()
        deadline = float("inf") if timeout_s is None else anyio.current_time() + timeout_s
        while True:
            lease, was_idle = await self._take(deadline)
            if not was_idle or getattr(lease.session, "is_open", True):
                return lease
            await self.release(lease, healthy=False)  # its connection ended while nobody used it

    async def _take(self, deadline: float) -> tuple[Lease[SessionT], bool]:
        """Waits for one session; returns whether it was open before, too."""
        ticket, decisions = self._state.request(anyio.current_time(), deadline)
        waiter = self._waiters[ticket] = _Waiter()
        try:
            await self._carry_out(decisions)
            while waiter.grant is None:
                if waiter.error is not None:
                    raise waiter.error
                if waiter.connect is not None:
                    await self._carry_out(await self._open(waiter, waiter.connect, deadline))
                else:
                    await self._carry_out(await self._wait(ticket, waiter))
            if waiter.connect is not None:  # granted before its own attempt was begun
                await self._carry_out(self._state.abandoned(waiter.connect.attempt, anyio.current_time()))
                waiter.connect = None
            if self._state.is_closed:
                raise closed_error()
            number = waiter.grant.session
            return Lease(self._sessions[number], waiter.grant.url, number), number != waiter.opened
        except BaseException:
            await self._give_up(ticket, waiter)
            raise
        finally:
            del self._waiters[ticket]

    async def release(self, lease: Lease[SessionT], *, healthy: bool = True) -> None:
        """Gives a session back. It is lent again, unless others wait for what it does (``others_wait``).

        Args:
            lease: What ``acquire`` returned.
            healthy: False when the session failed or its state is unknown: it is closed, and another is opened when
                one is needed.

        Raises:
            SessionStateError: The lease was released before.
        """
        keep = not getattr(lease.session, "others_wait", False)
        await self._carry_out(self._state.release(lease.number, anyio.current_time(), healthy, keep=keep))

    @asynccontextmanager
    async def session(self, deadline_s: float | None = None) -> AsyncGenerator[SessionT]:
        """Lends a session for a block; it counts as unhealthy when the block raises or is cancelled.

        Args:
            deadline_s: Seconds to wait for the session at most.
        """
        lease = await self.acquire(deadline_s)
        try:
            yield lease.session
        except BaseException:
            await self.release(lease, healthy=False)
            raise
        await self.release(lease)

    async def add_server(self, base_url: str, sessions: int | None = None) -> None:
        """Adds a server, or takes one back that was retired. Those who wait may get their sessions there.

        Args:
            base_url: Its address.
            sessions: Sessions to hold on it at most; as on the others if None.

        Raises:
            ConfigurationError: The pool has it already.
        """
        limit = self._sessions_per_server if sessions is None else sessions
        refuse_twins([*(server.url for server in self._state.servers), base_url])
        await self._carry_out(self._state.add_server(base_url, limit, anyio.current_time()))

    async def retire_server(self, base_url: str) -> None:
        """Opens and lends no more sessions of a server. Those that are lent are closed when they are released."""
        await self._carry_out(self._state.retire_server(base_url, anyio.current_time()))

    async def drop_server(self, base_url: str) -> None:
        """Takes a server that is dead out of the pool, and forgets what was learned of it.

        Sessions of it that are lent stay with their callers, who will notice, until they are released.
        """
        await self._carry_out(self._state.drop_server(base_url, anyio.current_time()))

    async def aclose(self) -> None:
        """Closes every session, also those that are lent; callers that wait get a SessionStateError."""
        if not self._state.is_closed:
            self._settled = anyio.Event()
            await self._carry_out(self._state.close(anyio.current_time()))
        if self._settled is not None:
            with anyio.move_on_after(self._close_timeout_s, shield=True):
                await self._settled.wait()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _open(self, waiter: _Waiter, connect: Connect, deadline: float) -> list[Decision]:
        """Makes the attempt that the state asked this caller for, and reports how it ended."""
        session: SessionT | None = None
        refused, failure = False, ""
        started = anyio.current_time()
        late = min(deadline, started + self._connect_timeout_s)
        with anyio.CancelScope(deadline=late) as scope:
            waiter.scope = scope
            if waiter.abandoned:
                scope.cancel()
            try:
                session = await self._connect(connect.url)
            except SessionCapacityError:
                refused = True
            except OSError as error:
                failure = f"{type(error).__name__}: {error}"
        abandoned = waiter.abandoned or bool(waiter.grant or waiter.error)
        waiter.scope = waiter.connect = None
        waiter.abandoned = False
        now = anyio.current_time()
        if session is not None:
            number, decisions = self._state.connected(connect.attempt, now)
            self._sessions[number] = session
            waiter.opened = number
        elif refused:
            decisions = self._state.refused(connect.attempt, now)
        elif abandoned:
            decisions = self._state.abandoned(connect.attempt, now)
        elif now >= deadline:
            unanswered = failure or f"no session within {now - started:.3g} s"
            decisions = self._state.abandoned(connect.attempt, now, unanswered)
        else:
            failure = failure or f"no session within {self._connect_timeout_s:g} s"
            decisions = self._state.failed(connect.attempt, now, failure)
        return decisions

    async def _wait(self, ticket: int, waiter: _Waiter) -> list[Decision]:
        """Waits until this caller is told something, or is to see to the time."""
        with anyio.CancelScope(deadline=self._state.wake_at(ticket, anyio.current_time())) as scope:
            await waiter.event.wait()
        waiter.event = anyio.Event()
        return self._state.tick(anyio.current_time()) if scope.cancelled_caught else []

    async def _give_up(self, ticket: int, waiter: _Waiter) -> None:
        """The caller was cancelled, or its attempt raised: what it had or was about to get goes to others."""
        now = anyio.current_time()
        decisions = self._state.cancel(ticket, now)
        if waiter.connect is not None:
            decisions += self._state.abandoned(waiter.connect.attempt, now)
        if waiter.grant is not None:
            decisions += self._state.release(waiter.grant.session, now, healthy=True)
        await self._carry_out(decisions)

    async def _carry_out(self, decisions: list[Decision]) -> None:
        """Tells callers, and closes what is to be closed; that is bounded in time and not cut short."""
        to_close = self._tell(decisions)
        if to_close:
            with anyio.CancelScope(shield=True):
                async with anyio.create_task_group() as tasks:
                    for number in to_close:
                        tasks.start_soon(self._close, number)

    def _tell(self, decisions: list[Decision]) -> list[int]:
        """Passes decisions to the callers whose they are; returns the sessions to close."""
        to_close: list[int] = []
        for decision in decisions:
            if isinstance(decision, Close):
                to_close.append(decision.session)
            elif isinstance(decision, Abandon):
                waiter = self._waiters[decision.ticket]
                waiter.abandoned = True
                if waiter.scope is not None:
                    waiter.scope.cancel()
            else:
                waiter = self._waiters[decision.ticket]
                if isinstance(decision, Grant):
                    waiter.grant = decision
                elif isinstance(decision, Connect):
                    waiter.connect = decision
                else:
                    waiter.error = decision.error
                waiter.event.set()
        head = self._state.head
        wake_at = math.inf if head is None else self._state.wake_at(head, anyio.current_time())
        if head is not None and (head != self._told_head or wake_at < self._head_wakes_at):
            self._waiters[head].event.set()  # it minds the time: from now on, or earlier than it meant to
        self._told_head, self._head_wakes_at = head, wake_at
        if self._settled is not None and not self._state.connecting:
            self._settled.set()
        return to_close

    async def _close(self, number: int) -> None:
        session = self._sessions.pop(number)
        try:
            with anyio.move_on_after(self._close_timeout_s):
                await session.close()
        except Exception as error:
            # A session that fails to close is gone all the same, whatever its class raises.
            logger.debug("closing a session failed: %s: %s", type(error).__name__, error)
        finally:
            self._tell(self._state.closed(number, anyio.current_time()))

    def _check_loop(self) -> None:
        loop = anyio.lowlevel.current_token()
        if self._loop is None:
            self._loop = loop
        elif self._loop != loop:
            raise SessionStateError(
                "this pool was used in another event loop, and its sessions live there; make a pool in each anyio.run",
                phase="connect",
            )
