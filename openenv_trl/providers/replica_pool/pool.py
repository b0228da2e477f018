"""A pool of sessions over servers that it starts when they are needed, replaces when they die, and stops when idle.

`ReplicaController` decides about the servers and `PoolState` about the sessions; this carries out what both say. All of
it happens in tasks of the pool's own, on the event loop that opened it; what a provider raises ends none of them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict
from types import TracebackType

import anyio
import anyio.abc
from typing_extensions import Self

from openenv_trl.chance import CHANCE
from openenv_trl.errors import ConfigurationError, ConnectionFailedError, SessionStateError
from openenv_trl.providers.base import Replica
from openenv_trl.providers.logs import logger
from openenv_trl.providers.pool import Lease, SessionPool, SessionT
from openenv_trl.providers.pool_decisions import Decision as SessionDecision
from openenv_trl.providers.replica_pool.controller import ReplicaController
from openenv_trl.providers.replica_pool.decisions import (
    Admit,
    Decision,
    Drop,
    FailWaiters,
    Load,
    Probe,
    RemoveReplica,
    Retire,
    ServerLoad,
    StartReplica,
)
from openenv_trl.providers.replica_pool.directory import Directory, Known
from openenv_trl.providers.replica_pool.health import HealthChecks
from openenv_trl.providers.replica_pool.member import MemberState
from openenv_trl.providers.replica_pool.members import PoolMember, members_of
from openenv_trl.providers.replica_pool.metrics import ReplicaPoolMetrics, Reservoir, Usage
from openenv_trl.providers.replica_pool.settings import PoolSettings
from openenv_trl.providers.replica_pool.start_limit import StartLimit
from openenv_trl.providers.replica_pool.vigil import Vigil

# For how long the report of a death is waited for, once the engine has said that a replica does not run.
_REPORT_S = 5.0


class ReplicaPool(SessionPool[SessionT]):
    """Sessions on as many servers as callers need.

    A `SessionPool` whose servers come and go: `acquire`, `release` and `session` are as there. It is opened by ``async
    with``, and belongs to that event loop. At its end all replicas are stopped, and their providers with them.

    Args:
        members: A provider (or its spec, or that as a settings file has it), the address of a server that runs already,
            or a list of such. A provider may have replicas already. Servers given by their address are used and
            watched, never started nor stopped.
        connect: Opens a session on a server; it has the address, and the headers that requests need. Raises as
            `SessionPool` says.
        settings: How many servers, when, and how they are watched.
        shared: Limits that this pool keeps together with others.

    Raises:
        ConfigurationError: There is no member, or one cannot be used.

    Example:
        >>> provider = ProcessProvider("environments/blackjack_env")
        >>> async with ReplicaPool(provider, connect, PoolSettings(min_replicas=0, max_replicas=8)) as pool:
        ...     async with pool.session(deadline_s=60) as session:
        ...         await session.reset(seed=1)
    """

    SERVERS_COME = True

    def __init__(
        self,
        members: PoolMember | Sequence[PoolMember],
        connect: Callable[[Replica], Awaitable[SessionT]],
        settings: PoolSettings | None = None,
        *,
        shared: StartLimit | None = None,
    ) -> None:
        self.settings = settings or PoolSettings()
        providers, self._remotes = members_of(members)
        self._sources = [Vigil(provider) for provider in providers]
        if providers and not self.settings.max_replicas:
            raise ConfigurationError("max_replicas=0, so the provider may start nothing; raise it")
        super().__init__(
            [],
            self._connect_to,
            sessions_per_server=self.settings.sessions_per_replica,
            connect_timeout_s=self.settings.connect_timeout_s,
            close_timeout_s=self.settings.close_timeout_s,
            server_patience_s=self.settings.server_patience_s,
        )
        self._connect_replica = connect
        self._shared = shared
        self._controller: ReplicaController | None = None
        self._directory = Directory()
        self._wake = anyio.Event()
        self._upsets = 0
        self._capacity = 0
        self._waits = Reservoir()
        self._start_times = Reservoir()
        self._health = HealthChecks(self.settings.health_timeout_s)
        self._sleep = anyio.CancelScope()
        self._group: anyio.abc.TaskGroup | None = None
        self._tasks: anyio.abc.TaskGroup | None = None
        self._ended = anyio.Event()

    def __repr__(self) -> str:
        there = f"{len(self._state.servers)} servers" if self._controller is not None else "not open"
        return f"<ReplicaPool, {there}, {self._state.lent} of {self.max_sessions} sessions lent>"

    @property
    def max_sessions(self) -> int:
        """Sessions that all its servers hold at most: a good ``max_concurrent_episodes``."""
        servers = len(self._remotes) + (self.settings.max_replicas if self._sources else 0)
        return servers * self.settings.sessions_per_replica

    @property
    def replicas(self) -> list[Replica]:
        """The servers that are ready now."""
        there = (self._directory.at(server.url) for server in self._state.servers)
        return [known.replica for known in there if known is not None]

    def headers_of(self, base_url: str) -> dict[str, str]:
        """HTTP headers that requests to one of its servers need."""
        known = self._directory.at(base_url)
        return {} if known is None else dict(known.replica.headers)

    def metrics(self) -> ReplicaPoolMetrics:
        """The pool's counters and present numbers."""
        controller, sessions = self._opened(), super().metrics()
        ready = controller.count(MemberState.READY)
        busy = sum(server.in_use > 0 for server in self._state.servers)
        start_p50, start_max = self._start_times.percentiles([0.5, 1])
        p50, p95, longest = self._waits.percentiles([0.5, 0.95, 1])
        return ReplicaPoolMetrics(
            **asdict(sessions),
            replicas_starting=controller.count(MemberState.STARTING),
            replicas_ready=ready,
            replicas_busy=busy,
            replicas_idle=ready - busy,
            replicas_draining=controller.count(MemberState.DRAINING) + controller.count(MemberState.REMOVING),
            servers_away=controller.count(MemberState.AWAY),
            starts=controller.counts["starts"],
            start_failures=controller.counts["start_failures"],
            deaths=controller.counts["deaths"],
            start_s_p50=start_p50,
            start_s_max=start_max,
            acquire_s_p50=p50,
            acquire_s_p95=p95,
            acquire_s_max=longest,
            utilisation=self._usage.average,
        )

    async def acquire(self, timeout_s: float | None = None) -> Lease[SessionT]:
        """Waits for a session, and lends it until it is released: see `SessionPool.acquire`.

        Args:
            timeout_s: Seconds to wait at most, for a server to start too; None to wait as long as it takes.

        Raises:
            DeadlineExceededError: No server was ready, or all sessions stayed in use.
            ConnectionFailedError: No server answered in all that time, and none could be started.
            ServerStartError: No server runs, and starts failed again and again; it is the last one's error.
            ConfigurationError: No server runs, and none can be started with such settings.
            SessionStateError: The pool is not open, or belongs to another event loop.
        """
        self._opened()
        began = anyio.current_time()
        lease = await super().acquire(timeout_s)
        self._waits.add(anyio.current_time() - began)
        return lease

    async def explain(self, base_url: str) -> str:
        """Why a server of the pool has died; "" where it has not.

        Asked when a session on it was lost: how its process ended, why where the engine knows, and its last lines.

        Args:
            base_url: The server's address, as a lease has it.
        """
        return await self._directory.explain(base_url, self._ask_health)

    async def aclose(self) -> None:
        """Closes every session and stops every replica; callers that wait get a SessionStateError."""
        with anyio.CancelScope(shield=True):
            await super().aclose()
            if self._tasks is not None:
                self._tasks.cancel_scope.cancel()
            if self._group is not None:
                await self._ended.wait()

    async def __aenter__(self) -> Self:
        if self._controller is not None:
            raise SessionStateError("the pool was opened before; make a new one", phase="connect")
        self._check_loop()
        now = anyio.current_time()
        self._usage = Usage(now)
        self._controller = ReplicaController(
            self.settings,
            len(self._sources),
            [remote.base_url for remote in self._remotes],
            now,
            shared=self._shared,
            chance=CHANCE.random,
        )
        for number, remote in zip(self._controller.members, self._remotes, strict=True):
            self._directory.add(number, Known(remote, None))
        for index, source in enumerate(self._sources):
            for replica in source.provider.replicas:
                self._directory.add(self._controller.adopt(index, replica.base_url, now), Known(replica, source))
        if self._shared is not None:
            self._shared.subscribe(self._rouse)
        self._group = anyio.create_task_group()
        await self._group.__aenter__()
        self._group.start_soon(self._run, self._controller)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
        if self._group is not None:
            # What the block raised goes on as it is, not in a group.
            await self._group.__aexit__(None, None, None)

    # The pool's own tasks.

    async def _run(self, controller: ReplicaController) -> None:
        """Decides whenever something has happened or it is time; at the end stops all that was started."""
        try:
            async with anyio.create_task_group() as self._tasks:
                for source in self._sources:
                    self._tasks.start_soon(source.watch, self._exited)
                while not self._state.is_closed:
                    self._wake = anyio.Event()
                    self._plan()
                    with anyio.CancelScope(deadline=controller.wake_at) as self._sleep:
                        await self._wake.wait()
                self._tasks.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                async with anyio.create_task_group() as stopping:
                    for source in self._sources:
                        stopping.start_soon(source.stop)
                await self._health.close()
            controller.close()
            if self._shared is not None:
                self._shared.unsubscribe(controller, self._rouse)
            self._ended.set()

    def _plan(self) -> None:
        """Has the controller decide, and carries it out at once, or begins to."""
        controller, state, now = self._opened(), self._state, anyio.current_time()
        if state.is_closed:
            return
        self._upsets = state.upsets
        for decision in controller.plan(now, self._load()):
            self._begin(decision, now)
        outlook = controller.outlook(now)
        if outlook != state.outlook:
            state.set_outlook(outlook, now)
            self._tell([])
        self._capacity = sum(server.allowed for server in state.servers)
        self._sleep.deadline = controller.wake_at

    def _begin(self, decision: Decision, now: float) -> None:
        assert self._tasks is not None
        state = self._state
        if isinstance(decision, StartReplica):
            self._tasks.start_soon(self._start, decision.member, self._sources[decision.source])
        elif isinstance(decision, RemoveReplica):
            self._tasks.start_soon(self._remove, decision.member)
        elif isinstance(decision, Probe):
            self._tasks.start_soon(self._probe, decision.member)
        elif isinstance(decision, Admit):
            self._apply(state.add_server(decision.url, self.settings.sessions_per_replica, now))
        elif isinstance(decision, Retire):
            self._apply(state.retire_server(decision.url, now))
        elif isinstance(decision, Drop):
            self._directory.note_death(decision.url, decision.why)
            self._apply(state.drop_server(decision.url, now))
        else:
            assert isinstance(decision, FailWaiters)
            self._apply(state.fail_waiters(decision.error, now))

    def _apply(self, decisions: list[SessionDecision]) -> None:
        assert self._tasks is not None
        for number in self._tell(decisions):
            self._tasks.start_soon(self._close_to_the_end, number)

    async def _close_to_the_end(self, number: int) -> None:
        with anyio.CancelScope(shield=True):
            await self._close(number)

    async def _start(self, number: int, source: Vigil) -> None:
        controller, began = self._opened(), anyio.current_time()
        try:
            replica = await source.provider.add_replica()
            if any(server.url == replica.base_url for server in self._state.servers):
                await source.provider.remove_replica(replica)
                raise ConfigurationError(f"the pool has a server at {replica.base_url} already; name each server once")
        except Exception as error:
            # A provider may be anyone's code, and is tried again.
            logger.warning("A replica could not be started: %s", error)
            controller.start_failed(number, error, anyio.current_time())
        else:
            source.runs_some()
            self._start_times.add(anyio.current_time() - began)
            self._directory.add(number, Known(replica, source))
            controller.started(number, replica.base_url, anyio.current_time())
        self._plan()

    async def _remove(self, number: int) -> None:
        known = self._directory.by_number(number)
        assert known.vigil is not None, "servers given by their address are not removed"
        await known.vigil.remove(known.replica)
        self._directory.forget(number)
        self._opened().removed(number)
        self._plan()

    async def _probe(self, number: int) -> None:
        known = self._directory.by_number(number)
        failure = await self._ask_health(known)
        runs = not failure or known.vigil is None or await known.vigil.runs(known.replica)
        if not runs:
            # Its provider is about to tell of its end, with the reason and its last lines.
            with anyio.move_on_after(_REPORT_S):
                await self._directory.death_of(known.replica.base_url)
        self._opened().probed(number, failure, anyio.current_time(), runs=runs)
        self._plan()

    async def _ask_health(self, known: Known) -> str:
        return await self._health.ask(known.replica, None if known.vigil is None else known.vigil.health_path)

    def _exited(self, replica: Replica, why: str) -> None:
        self._opened().exited(replica.base_url, why, anyio.current_time())
        self._plan()

    # How sessions and servers meet.

    async def _connect_to(self, base_url: str) -> SessionT:
        known = self._directory.at(base_url)
        if known is None:
            raise ConnectionFailedError(f"{base_url} is gone", phase="connect")
        return await self._connect_replica(known.replica)

    def _tell(self, decisions: list[SessionDecision]) -> list[int]:
        to_close = super()._tell(decisions)
        state, controller = self._state, self._controller
        if controller is not None:
            self._usage.note(state.lent, self._capacity, anyio.current_time())
            if state.upsets != self._upsets or not controller.is_calm(state.demand):
                self._rouse()
        return to_close

    def _rouse(self) -> None:
        self._wake.set()

    def _load(self) -> Load:
        state = self._state
        servers = {
            server.url: ServerLoad(server.load + server.closing, server.allowed, bool(server.failures))
            for server in [*state.leaving, *state.servers]
        }
        return Load(state.demand, state.demand - state.lent, state.queued, state.queued_since, servers)

    def _opened(self) -> ReplicaController:
        if self._controller is None:
            raise SessionStateError("the pool is not open; use it as `async with pool:`", phase="connect")
        return self._controller
