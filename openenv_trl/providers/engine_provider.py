"""Servers under an engine with an API (Docker, Kubernetes, ...), kept by a thread of the provider's own.

Everything that an engine's client does happens on that thread's event loop: its events and logs are read, and leases
are renewed, also while a trainer keeps its own loop, or its only thread, busy. Callers reach it from any loop and from
none. A subclass says how one replica is started and removed; this runs many of them, waits until they are ready, and
keeps what is known of each.
"""

from __future__ import annotations

import functools
import itertools
from abc import abstractmethod
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, Generic, TypeVar
from urllib.parse import urlsplit

import anyio
import anyio.to_thread

from openenv_trl.background import BackgroundLoop
from openenv_trl.errors import ProviderError
from openenv_trl.providers.base import Endpoint, Provider, Replica, ReplicaExit
from openenv_trl.providers.kept import IN_A_FORK, Exits, Kept, OneForAll, Start, side_by_side
from openenv_trl.providers.logs import logger
from openenv_trl.providers.outlet import Outlet
from openenv_trl.providers.readiness import wait_until_ready
from openenv_trl.providers.spec import SERVER_DEFAULTS, ServerSpec
from openenv_trl.providers.spec_fields import own_spec, required
from openenv_trl.providers.upkeep import Upkeep

SpecT = TypeVar("SpecT", bound=ServerSpec)
_CALLBACKS_TAKE_S = 5.0


class EngineProvider(Provider, Generic[SpecT]):
    """A provider whose replicas are kept by an engine with an API.

    Args:
        spec: What to run; None where ``start`` is given it.
        on_exit: Called when a ready replica ends by itself, from a thread of its own.
        on_log: Called with the replica's name and one line, from the same thread. Lines that come faster than it takes
            them are left out, and it is told how many.
    """

    def __init__(
        self,
        spec: SpecT | None = None,
        *,
        on_exit: Callable[[ReplicaExit], None] | None = None,
        on_log: Callable[[str, str], None] | None = None,
    ) -> None:
        self._spec: SpecT | None = None if spec is None else self._own_spec(spec)
        self._on_log = on_log
        self._engine = BackgroundLoop(f"openenv-{type(self).__name__}", IN_A_FORK)
        self._kept: dict[str, Kept] = {}
        """By name. Read from any thread, written on the provider's."""
        self._exits = Exits()
        self._connected = False
        self._connecting = anyio.Lock()
        self._starts: set[Start] = set()
        self._stopping = False
        self._one_stop = OneForAll()
        self._numbers = itertools.count()
        self._sink = Outlet(f"openenv-{type(self).__name__}-callbacks", on_exit, on_log)
        self._upkeep = Upkeep(self._leased)
        self._guarded: dict[str, Any] | None = None

    # What an engine does, on the provider's loop.

    @abstractmethod
    async def _connect(self) -> None:
        """Reach the engine, and begin to watch it.

        Raises:
            ProviderError: It does not answer; the message says what to start or set.
        """

    @abstractmethod
    async def _disconnect(self) -> None:
        """Let go of the engine. Called when nothing of the provider's runs any more, also where `_connect` failed."""

    @abstractmethod
    async def _launch(self, name: str) -> Replica:
        """Start one replica and return as soon as its address is known; it need not answer yet.

        Cancelled or failed, nothing of it may be left.

        Raises:
            ServerStartError: It could not be started, as when its image is missing.
            ProviderError: The engine does not answer.
        """

    @abstractmethod
    async def _remove(self, replica: Replica) -> None:
        """End one replica, and remove what it left: its container, its volumes. It may be gone already."""

    @abstractmethod
    async def _is_alive(self, replica: Replica) -> bool:
        """Whether the engine says that it runs."""

    @abstractmethod
    async def _read_logs(self, replica: Replica, tail: int) -> str:
        """Its last lines."""

    async def _health(self, replica: Replica, timeout_s: float, ended: Callable[[], bool]) -> str:
        """Wait until it answers its health check; returns "" when it did, else what came last."""
        parts = urlsplit(replica.base_url)
        assert parts.hostname is not None
        port = parts.port or (443 if parts.scheme == "https" else 80)
        return await wait_until_ready(parts.hostname, port, self.spec.health_path, timeout_s, ended)

    # What a subclass may use.

    @property
    def spec(self) -> SpecT:
        """What is run.

        Raises:
            ConfigurationError: Nobody said.
        """
        return required(self._spec, type(self).__name__, self.SPEC)

    def _lease_variables(self, name: str) -> dict[str, str]:
        """Environment variables of a replica's server: whose it is, and for how long it lives without its owner.

        With them are defaults of servers that a provider starts, where the spec does not say otherwise.
        """
        defaults = {key: value for key, value in SERVER_DEFAULTS.items() if key not in self.spec.env_vars}
        return defaults | self._upkeep.variables(self._lease_s(), self.spec.ready_timeout_s)

    def _lease_s(self) -> float | None:
        return getattr(self.spec, "lease_s", None)

    async def _spawn(self, function: Callable[..., Awaitable[Any]], *arguments: Any) -> Future[Any]:
        """Run a function beside all else on the provider's loop; cancel the future to end it, or stop the provider."""
        start = functools.partial(self._engine.portal().start_task_soon, function, *arguments)
        return await anyio.to_thread.run_sync(start)

    def _place(self) -> dict[str, Any] | None:
        """Where the engine is, for `openenv_trl.providers.ownership.sweep`; None where it cannot sweep."""
        if self.spec.type in ("docker", "swarm"):
            from openenv_trl.providers.ownership.docker_place import docker_place

            return docker_place(self.spec.type, getattr(self, "_docker_host", None))
        return None

    def _default_name(self) -> str:
        """What replicas are called where the spec gives no name."""
        return self.spec.type

    def _start_count(self) -> int:
        """How many replicas `start` brings up."""
        return self.spec.replicas

    def _note_exit(
        self, name: str, exit_code: int | None, log_tail: str, reason: str = "", *, restarting: bool = False
    ) -> None:
        """Take note that a replica has ended; called on the provider's loop as soon as the engine tells.

        Where the engine itself starts a ready replica again (``restarting``), it is told of and kept.
        """
        kept = self._kept.get(name)
        if kept is None or kept.exit is not None:
            return
        gone = kept.end(exit_code, log_tail, reason, restarting)
        if not kept.ready or kept.removing:
            return
        logger.warning("%s has died: %s", name, reason or f"exit code {exit_code}")
        self._exits.put(gone)
        self._sink.exit(gone)

    # The contract.

    @property
    def replicas(self) -> list[Replica]:
        """The replicas that were started and have not ended; empty before ``start`` and after ``stop``."""
        return [kept.replica for kept in list(self._kept.values()) if kept.ready and kept.exit is None]

    async def start(self, spec: ServerSpec | None = None) -> Endpoint:
        """Starts all replicas at the same time and waits until each is ready: see `Provider.start`."""
        self._engine.check_process()
        return await self._start_all(spec, ready=True)

    async def _start_all(self, spec: ServerSpec | None, ready: bool) -> Endpoint:
        if self._kept:
            raise ProviderError("this provider runs already; stop it before it is started again", phase="start")
        if spec is not None:
            self._spec = self._own_spec(spec)
        begin = functools.partial(self._begin, ready)
        try:
            await self._engine.call(side_by_side, [begin] * self._start_count(), True)
        except BaseException:
            with anyio.CancelScope(shield=True):
                try:
                    await self.stop()
                except ProviderError as error:
                    logger.warning("%s: %s", self._base_name(), error)  # beside what kept it from starting
            raise
        return Endpoint(self._base_name(), tuple(kept.replica for kept in self._kept.values()))

    async def check(self) -> None:
        """Reaches the engine and looks at what is to be run: see `Provider.check`."""
        self._engine.check_process()
        if self._connected:
            return
        self.spec  # noqa: B018 - raises where there is none
        try:
            await self._engine.call(self._ensure_connected)
        finally:
            await self.stop()

    async def add_replica(self) -> Replica:
        """Starts one more replica and waits until it is ready: see `Provider.add_replica`."""
        self.spec  # noqa: B018 - raises where there is none
        return await self._engine.call(self._begin)

    async def remove_replica(self, replica: Replica) -> None:
        """Ends one replica and everything it started. Does nothing where it is gone already."""
        self._engine.check_process()
        if self._engine.runs:
            await self._engine.call(self._end, replica.name)

    async def stop(self) -> None:
        """Ends all replicas and everything they started. May be called again, and before ``start``."""
        if not self._engine.runs:
            return  # in a forked copy of the provider the servers are not its own
        with anyio.CancelScope(shield=True):
            try:
                await self._one_stop.run(self._stop_once)
            finally:
                await self._sink.told(_CALLBACKS_TAKE_S)

    async def _stop_once(self) -> None:
        try:
            if self._engine.runs:
                await self._engine.call(self._end_all)
        finally:
            try:
                await anyio.to_thread.run_sync(self._engine.close, limiter=anyio.CapacityLimiter(1))
            finally:
                self._stopping = False

    async def wait_ready(self, replica: Replica | None = None, timeout_s: float | None = None) -> None:
        """Waits until a replica answers its health check: see `Provider.wait_ready`."""
        self._engine.check_process()
        wanted = self._awaited() if replica is None else [replica]
        for each in wanted:
            await self._engine.call(self._await_ready, self._kept_of(each), timeout_s)

    async def logs(self, replica: Replica | None = None, tail: int = 100) -> str:
        """The last lines that a replica wrote."""
        self._engine.check_process()
        kept = self._kept_of(self._the_replica(replica))
        if kept.exit is not None:
            return "\n".join(kept.exit.log_tail.splitlines()[-tail:])
        return await self._engine.call(self._read_logs, kept.replica, tail)

    async def alive(self, replica: Replica | None = None) -> bool:
        """Whether a replica's server runs; of all of them, if None."""
        self._engine.check_process()
        wanted = [kept.replica for kept in self._kept.values()] if replica is None else [replica]
        for each in wanted:
            kept = self._kept.get(each.name)
            if kept is None or kept.exit is not None or not await self._engine.call(self._is_alive, kept.replica):
                return False
        return bool(wanted)

    async def wait_exited(self) -> ReplicaExit:
        """Waits until a replica ends that nobody stopped: see `Provider.wait_exited`."""
        self._engine.check_process()
        if not self._engine.runs:
            raise ProviderError("the provider does not run: no replica can end")
        return await self._engine.call(self._exits.take)

    # On the provider's loop.

    async def _begin(self, ready: bool = True) -> Replica:
        """One more replica; ready, unless that is left to a later `_await_ready`."""
        start = Start()
        if self._stopping:
            raise ProviderError("the provider is being stopped: it starts nothing", phase="start")
        self._starts.add(start)
        try:
            with start.scope:
                return await self._bring_up(ready)
        finally:
            self._starts.discard(start)
            start.over.set()
        raise ProviderError("the provider was stopped while a replica started", phase="start")

    async def _ensure_connected(self) -> None:
        async with self._connecting:
            if not self._connected:
                self._sink.open(self.spec.log_path)
                self._guarded = self._place()
                await self._upkeep.guard(self._guarded)
                try:
                    await self._connect()
                except BaseException:
                    with anyio.CancelScope(shield=True):
                        await self._disconnect()
                        self._upkeep.release()
                    raise
                self._connected = True

    async def _bring_up(self, ready: bool) -> Replica:
        await self._ensure_connected()
        name = f"{self._base_name()}-{next(self._numbers)}"
        kept = Kept(Replica("", name))
        self._kept[name] = kept
        try:
            kept.replica = await self._launch(name)
            if kept.exit is not None:
                kept.exit = replace(kept.exit, replica=kept.replica)
            # Before it is ready: a server that takes long to be healthy serves already, and its lease runs.
            await self._upkeep.begin(self._spawn, self._lease_s(), self._guarded)
            if ready:
                await self._await_ready(kept, None)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self._end(name)
            raise
        return kept.replica

    async def _await_ready(self, kept: Kept, timeout_s: float | None) -> None:
        timeout_s = self.spec.ready_timeout_s if timeout_s is None else timeout_s
        last = await kept.healthy(functools.partial(self._health, kept.replica, timeout_s))
        if last:
            raise kept.late(timeout_s, self.spec.health_path, last, await self._last_lines(kept.replica))
        kept.ready = True

    async def _last_lines(self, replica: Replica) -> str:
        try:
            return await self._read_logs(replica, 60)
        except ProviderError as error:  # why it is wanted is the news
            return f"(its log cannot be read: {error})"

    async def _end(self, name: str) -> None:
        kept = self._kept.get(name)
        if kept is None:
            return
        kept.removing = True
        try:
            if kept.replica.id:
                await self._remove(kept.replica)
        finally:
            self._kept.pop(name, None)

    async def _end_all(self) -> None:
        # What is still on its way cleans up after itself, while the engine can be reached.
        self._stopping = True
        for start in list(self._starts):
            start.scope.cancel()
            await start.over.wait()
        failure: Exception | None = None
        try:
            await side_by_side([functools.partial(self._end, name) for name in list(self._kept)], False)
        except Exception as error:
            failure = error
        self._exits.stop()
        self._upkeep.end()
        connected, self._connected = self._connected, False
        try:
            if connected:
                await self._disconnect()
        finally:
            self._sink.close()
        if failure is not None:
            raise failure
        self._upkeep.release()

    def _leased(self) -> list[Replica]:
        return [kept.replica for kept in self._kept.values() if kept.exit is None and not kept.removing]

    def _awaited(self) -> list[Replica]:
        """Those that run or should: also the ones that were launched and have not answered yet."""
        launched = [kept for kept in list(self._kept.values()) if kept.replica.base_url]
        return [kept.replica for kept in launched if kept.exit is None or not kept.ready]

    def _base_name(self) -> str:
        return self.spec.name or self._default_name()

    def _kept_of(self, replica: Replica) -> Kept:
        kept = self._kept.get(replica.name)
        if kept is None:
            raise ProviderError(f"this provider does not run {replica.name}")
        return kept

    def _own_spec(self, spec: Any) -> SpecT:
        return own_spec(spec, type(self).__name__, self.SPEC)
