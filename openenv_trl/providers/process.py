"""Environment servers as child processes: started together, watched, and gone when their owner is.

Each server runs under a small supervisor process (``supervisor.py``) that ends it when this process ends,
however it ends.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread

from openenv_trl.errors import ConfigurationError, ProviderError, ServerStartError
from openenv_trl.providers.base import Endpoint, Provider, Replica, ReplicaExit
from openenv_trl.providers.command import ServerCommand
from openenv_trl.providers.logs import LogSink, logger
from openenv_trl.providers.owner import this_owner
from openenv_trl.providers.ports import PortReservation
from openenv_trl.providers.process_spec import ProcessSpec
from openenv_trl.providers.readiness import wait_until_ready
from openenv_trl.providers.replica_process import ReplicaProcess
from openenv_trl.providers.replica_slot import Slot, end_slot
from openenv_trl.providers.spec import SERVER_DEFAULTS, ServerSpec
from openenv_trl.providers.spec_fields import own_spec, required, spec_or_fields

_FIRST_RESTART_PAUSE_S = 0.1


def _words(command: Sequence[str]) -> list[str]:
    if not command:
        raise ConfigurationError("the command is empty; pass the program and its arguments")
    return [str(word) for word in command]


class ProcessProvider(Provider):
    """Runs environment servers as child processes of this one.

    The servers get this process's environment variables, ``env_vars`` over them, and write to one log (Python servers
    unbuffered, unless PYTHONUNBUFFERED says otherwise). They are ended by SIGTERM, and by SIGKILL after a grace time,
    with all that they started: by ``stop``, by the end of the ``with`` block, and when this process dies in whatever
    way. Episodes that still run get no time to end, unless OPENENV_TRL_DRAIN_TIMEOUT_S gives them some (up to
    ``stop_grace_s``).

    Args:
        command: A folder with an ``openenv.yaml``, or ``module:app``, is served by this package's own server. A list of
            strings is run as it is, for other servers: ``{port}`` and ``{host}`` in it are replaced (``PORT`` and
            ``HOST`` are also set as environment variables), ``{fd}`` by the number of a file descriptor that listens.
            A `ProcessSpec` has all settings in one; None where ``start`` is given it.
        replicas: How many servers to run.
        env_vars: Environment variables over those of this process.
        ready_timeout_s: Seconds within which each server must answer ``GET health_path`` with 200.
        stop_grace_s: Seconds between SIGTERM and SIGKILL.
        log_path: A file to which the servers' lines are appended.
        on_log: Called with the replica's name and one line, from a thread of the provider.
        max_restarts: How often a replica that ends by itself is started again, at the same address.
        on_exit: Called when a ready replica ends by itself, from a thread of the provider.
        name: What replicas are called in logs; by default after the folder or program.
        host: The address to listen on.
        cwd: The folder to run the servers in.
        health_path: The path that is asked for readiness.
        hold_port: Whether a server started with ``{port}`` finds its port reserved. It must then bind with
            SO_REUSEADDR, as uvicorn, asyncio, Go and Node do. Set it False for one that does not.

    Example:
        >>> with ProcessProvider("environments/blackjack_env", replicas=2) as servers:
        ...     print(servers.base_urls)
    """

    SPEC = ProcessSpec

    def __init__(
        self,
        command: str | Path | Sequence[str] | ProcessSpec | None = None,
        *,
        replicas: int = 1,
        env_vars: Mapping[str, str] | None = None,
        ready_timeout_s: float = 60.0,
        stop_grace_s: float = 5.0,
        log_path: str | Path | None = None,
        on_log: Callable[[str, str], None] | None = None,
        max_restarts: int = 0,
        on_exit: Callable[[ReplicaExit], None] | None = None,
        name: str | None = None,
        host: str = "127.0.0.1",
        cwd: str | Path | None = None,
        health_path: str = "/health",
        hold_port: bool = True,
    ) -> None:
        if os.name != "posix":
            raise ConfigurationError(f"{type(self).__name__} needs Linux or macOS; run it under WSL on Windows")
        if replicas < 1:
            raise ConfigurationError(f"replicas={replicas}; at least one server has to run")
        self._on_log = on_log
        self._on_exit = on_exit
        self._changed = threading.Condition()
        self._slots: list[Slot] = []
        self._stopping = threading.Event()
        self._exits: deque[ReplicaExit] = deque()
        self._numbers = itertools.count()
        self._opened = False
        self._spec: ProcessSpec | None = None
        if isinstance(command, ProcessSpec):
            self._use(command)
        elif command is not None:
            fields: dict[str, Any] = {
                "environment": str(command) if isinstance(command, str | Path) else _words(command),
                "replicas": replicas,
                "env_vars": env_vars or {},
                "ready_timeout_s": ready_timeout_s,
                "stop_grace_s": stop_grace_s,
                "log_path": None if log_path is None else Path(log_path),
                "max_restarts": max_restarts,
                "name": name,
                "host": host,
                "cwd": None if cwd is None else Path(cwd),
                "health_path": health_path,
                "hold_port": hold_port,
            }
            spec = spec_or_fields(ProcessSpec, None, fields)
            assert spec is not None
            self._use(spec)

    def _use(self, spec: ProcessSpec) -> None:
        if spec.cwd is not None and not spec.cwd.is_dir():
            raise ConfigurationError(f"cwd={str(spec.cwd)!r} is not a folder")
        self._command = self._command_of(spec)
        self._spec = spec
        self._sink = LogSink(spec.log_path, self._on_log)

    def _command_of(self, spec: ProcessSpec) -> ServerCommand:
        """What to run for a spec."""
        return ServerCommand.of(spec.environment, spec.name)

    @property
    def spec(self) -> ProcessSpec:
        """What is run.

        Raises:
            ConfigurationError: Nobody said.
        """
        return required(self._spec, type(self).__name__, self.SPEC)

    @property
    def replicas(self) -> list[Replica]:
        """The replicas that were started; empty before ``start`` and after ``stop``."""
        return [slot.replica for slot in self._slots]

    @property
    def running(self) -> list[Replica]:
        """The replicas whose process is there now."""
        return [slot.replica for slot in self._slots if slot.process and not slot.process.exited.done()]

    @property
    def server_pids(self) -> list[int | None]:
        """The process id of each replica's server; None where its supervisor has not told it yet."""
        return [slot.process.server_pid if slot.process else None for slot in self._slots]

    @property
    def supervisor_pids(self) -> list[int | None]:
        """The process id of each replica's supervisor."""
        return [slot.process.supervisor_pid if slot.process else None for slot in self._slots]

    async def start(self, spec: ServerSpec | None = None) -> Endpoint:
        """Starts all replicas at the same time and waits until each answers.

        Raises:
            ConfigurationError: The spec is of another provider, or there is none.
            ServerStartError: One of them ended or was not ready in time; none is left running.
            ProviderError: The provider runs already.
        """
        if self._slots:
            raise ProviderError("this provider runs already; stop it before it is started again", phase="start")
        if spec is not None:
            self._use(own_spec(spec, type(self).__name__, self.SPEC))
        self._open()
        failures: list[ServerStartError] = []
        try:
            slots = [self._add_slot() for _ in range(self.spec.replicas)]
            async with anyio.create_task_group() as tasks:
                for slot in slots:
                    tasks.start_soon(self._make_ready, slot, failures, tasks.cancel_scope)
            if failures:
                raise failures[0]
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self.stop()
            raise
        return Endpoint(self._command.name, tuple(self.replicas))

    async def add_replica(self) -> Replica:
        """Starts one more replica and waits until it is ready: see `Provider.add_replica`."""
        self.spec  # noqa: B018 - raises where there is none
        with self._changed:
            if not self._slots and (self._stopping.is_set() or not self._opened):
                self._open()
            slot = self._add_slot()
        failures: list[ServerStartError] = []
        try:
            with anyio.CancelScope() as scope:
                await self._make_ready(slot, failures, scope)
            if failures:
                raise failures[0]
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self.remove_replica(slot.replica)
            raise
        return slot.replica

    async def remove_replica(self, replica: Replica) -> None:
        """Ends one replica and everything it started. Does nothing where it is gone already."""
        with self._changed:
            slot = next((each for each in self._slots if each.replica.name == replica.name), None)
            if slot is None:
                return
            self._slots.remove(slot)
            slot.ready = False
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(end_slot, slot)

    async def wait_ready(self, replica: Replica | None = None, timeout_s: float | None = None) -> None:
        """Waits until a replica answers its health check: see `Provider.wait_ready`."""
        slots = list(self._slots) if replica is None else [self._slot_of(replica)]
        for slot in slots:
            failures: list[ServerStartError] = []
            with anyio.CancelScope() as scope:
                await self._make_ready(slot, failures, scope, timeout_s)
            if failures:
                raise failures[0]

    async def logs(self, replica: Replica | None = None, tail: int = 100) -> str:
        """The last lines that a replica wrote; at most 60 are kept."""
        process = self._slot_of(self._the_replica(replica)).process
        return "" if process is None else "\n".join(process.log_tail().splitlines()[-tail:])

    async def alive(self, replica: Replica | None = None) -> bool:
        """Whether a replica's process runs; of all of them, if None."""
        running = self.running
        return bool(running) and len(running) == len(self._slots) if replica is None else replica in running

    async def stop(self) -> None:
        """Ends all replicas and everything they started. May be called again, and before ``start``."""
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self.stop_sync)

    def stop_sync(self) -> None:
        """Ends all replicas and everything they started, blocking."""
        with self._changed:
            self._stopping.set()
            slots, self._slots = self._slots, []
            for slot in slots:
                slot.ready = False
            self._changed.notify_all()
        for slot in slots:
            if slot.process is not None:
                slot.process.ask_to_stop()
        for slot in slots:
            end_slot(slot)
        self._opened = False
        if self._spec is not None:
            self._sink.close()

    async def wait_exited(self) -> ReplicaExit:
        """Waits until a replica ends that nobody stopped. Exits that happened before come first, each once.

        Raises:
            ProviderError: The provider was stopped, or does not run.
        """
        given_up = threading.Event()
        try:
            return await anyio.to_thread.run_sync(
                self._take_exit, given_up, abandon_on_cancel=True, limiter=anyio.CapacityLimiter(1)
            )
        finally:
            with self._changed:
                given_up.set()
                self._changed.notify_all()

    def _take_exit(self, given_up: threading.Event) -> ReplicaExit:
        with self._changed:
            while not self._stopping.is_set() and self._slots and not given_up.is_set():
                if self._exits:
                    return self._exits.popleft()
                self._changed.wait()
        raise ProviderError("the provider does not run: no replica can end")

    def _open(self) -> None:
        self._sink.open()
        self._stopping = threading.Event()
        self._exits.clear()
        self._numbers = itertools.count()
        self._opened = True

    def _add_slot(self) -> Slot:
        slot = Slot(f"{self._command.name}-{next(self._numbers)}", PortReservation(self.spec.host, self.spec.port))
        self._slots.append(slot)
        try:
            self._spawn(slot)
        except Exception:
            if slot in self._slots:  # a stop may have taken it
                self._slots.remove(slot)
            slot.reservation.close()
            raise
        return slot

    def _slot_of(self, replica: Replica) -> Slot:
        for slot in self._slots:
            if slot.replica.name == replica.name:
                return slot
        raise ProviderError(f"this provider does not run {replica.name}")

    def _spawn(self, slot: Slot) -> None:
        """Starts the slot's process. It listens already where the command takes a file descriptor."""
        port, host = slot.reservation.port, slot.reservation.host
        listener = slot.reservation.listening_socket() if self._command.takes_fd else None
        if listener is None:
            slot.reservation.make_way(self.spec.hold_port)
        try:
            fds = [] if listener is None else [listener.fileno()]
            slot.process = ReplicaProcess(
                self._command.arguments(host, port, fds[0] if fds else None),
                env={
                    **SERVER_DEFAULTS,
                    **os.environ,
                    **this_owner().variables(),
                    **self.spec.env_vars,
                    "PORT": str(port),
                    "HOST": host,
                },
                cwd=None if self.spec.cwd is None else str(self.spec.cwd),
                passed_fds=fds,
                grace_s=self.spec.stop_grace_s,
                on_line=lambda text: self._sink.line(slot.replica.name, text),
                on_exit=lambda process, code: self._notice_exit(slot, process, code),
            )
        finally:
            # Only the server may hold the socket, or connections would hang, not fail, once it has ended.
            if listener is not None:
                listener.close()

    async def _make_ready(
        self, slot: Slot, failures: list[ServerStartError], scope: anyio.CancelScope, timeout_s: float | None = None
    ) -> None:
        """Waits for one replica; on failure keeps the error and ends the waiting for the others."""
        timeout_s = self.spec.ready_timeout_s if timeout_s is None else timeout_s
        process = slot.process
        assert process is not None
        host, port = slot.reservation.host, slot.reservation.port
        ended = process.exited.done
        last = await wait_until_ready(host, port, self.spec.health_path, timeout_s, ended)
        with self._changed:
            slot.ready = not last and not ended()
        if slot.ready:
            return
        name = slot.replica.name
        if ended():
            message = f"{name} ended with exit code {process.exited.result()} before it was ready{self._hint(process)}"
        else:
            message = (
                f"{name} was not ready within {timeout_s:g} s: GET {slot.replica.base_url}"
                f"{self.spec.health_path}: {last}. Raise ready_timeout_s, or look at what it wrote:"
            )
        failures.append(ServerStartError(message, log_tail=process.log_tail()))
        scope.cancel()

    def _hint(self, process: ReplicaProcess) -> str:
        if "already in use" in process.log_tail() and not self._command.takes_fd and self.spec.hold_port:
            return ". If its server binds without SO_REUSEADDR, pass hold_port=False. It wrote:"
        return ". It wrote:"

    def _notice_exit(self, slot: Slot, process: ReplicaProcess, code: int) -> None:
        """In the process's thread: tells of an exit that nobody asked for, and starts the replica again."""
        with self._changed:
            if self._stopping.is_set() or not slot.ready:
                return
            stopping = self._stopping
            restarting = slot.restarts < self.spec.max_restarts
            report = ReplicaExit(slot.replica, code, process.log_tail(), restarting)
            self._exits.append(report)
            self._changed.notify_all()
        logger.warning("%s ended with exit code %s%s", slot.replica.name, code, ", restarting" if restarting else "")
        if self._on_exit is not None:
            try:
                self._on_exit(report)
            except BaseException:
                # The caller's own code: its mistake must not keep the replica from being started again.
                logger.exception("on_exit failed")
        if restarting and not stopping.wait(_FIRST_RESTART_PAUSE_S * 2**slot.restarts):
            self._restart(slot, stopping)

    def _restart(self, slot: Slot, stopping: threading.Event) -> None:
        with self._changed:
            if stopping.is_set() or slot not in self._slots:  # it was removed meanwhile
                return
            slot.restarts += 1
            try:
                self._spawn(slot)
            except Exception:
                logger.exception("%s could not be started again", slot.replica.name)
