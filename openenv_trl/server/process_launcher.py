"""Starts the processes of environments: forks of one process that has everything imported already.

Source: the "forkserver" start method of Python's ``multiprocessing``. Nothing here forks the server, which has threads.
"""

from __future__ import annotations

import contextlib
import functools
import json
import multiprocessing
import multiprocessing.connection
import multiprocessing.forkserver
import multiprocessing.spawn
import os
import pickle
import signal
import socket
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from openenv_trl.errors import ConfigurationError

if TYPE_CHECKING:
    from multiprocessing.context import ForkServerProcess

    from openenv_trl.types import ServerMode

PRELOAD_VARIABLE = "OPENENV_TRL_PRELOAD"

_EXIT_CODE_S = 5.0  # for the exit code of a process that is known to end
_starting = threading.Lock()  # multiprocessing looks after all its processes at each start, and not in turn


def check_factory(factory: Callable[[], Any]) -> None:
    """Raise where a factory cannot be sent to a process.

    Raises:
        ConfigurationError: It cannot; the text says what to do.
    """
    if not hasattr(socket, "AF_UNIX") or "forkserver" not in multiprocessing.get_all_start_methods():
        raise ConfigurationError(
            'EXECUTION = "process" needs a system that can fork (Linux, macOS). Set it to "thread" here.'
        )
    try:
        pickle.dumps(factory)
    except Exception as error:  # boundary: pickling calls the code of whatever is in it
        raise ConfigurationError(
            f'EXECUTION = "process" sends the environment factory to another process, but {factory!r} cannot be sent '
            f"({error}). Give a class or a function that is defined at the top of a module, or functools.partial of "
            "one; no lambda, and nothing defined inside a function."
        ) from error


@dataclass(slots=True)
class EnvironmentProcess:
    """A process that was started.

    Attributes:
        way: To the worker in it.
        pid: Its id, and its process group's.
    """

    way: socket.socket
    pid: int
    _process: ForkServerProcess
    _lifeline: Connection
    _ended: bool = False

    def kill(self) -> None:
        """Kill it with all that it started. May come more than once."""
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            if not self._ended:  # so young that it does not lead its group yet
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self.pid, signal.SIGKILL)
        except PermissionError:  # macOS says so of a group of which only a zombie is left
            pass

    def exit_code(self, wait_s: float = _EXIT_CODE_S) -> int | None:
        """Wait a little for its end and return its exit code (blocking). None where it does not end."""
        multiprocessing.connection.wait([self._process.sentinel], wait_s)
        with _starting:
            code = self._process.exitcode
        self._ended = code is not None
        return code

    def forget(self) -> None:
        """Let go of what is kept of a process that has ended (blocking)."""
        ended = self.exit_code() is not None
        self._lifeline.close()
        if ended:
            with _starting:
                self._process.close()


class ProcessLauncher:
    """Starts processes for the environments of one factory.

    Args:
        factory: Builds one environment.

    Raises:
        ConfigurationError: It cannot be sent to a process.
    """

    def __init__(self, factory: Callable[[], Any]) -> None:
        check_factory(factory)
        self._factory = factory
        self._context = multiprocessing.get_context("forkserver")

    def warm_up(self) -> None:
        """Start the process that the others are forked from (blocking); its imports go on meanwhile."""
        with _starting:
            self._ensure_fork_server()

    def start(self, mode: ServerMode) -> EnvironmentProcess:
        """Start a process (blocking). It begins to build its environment at once.

        Raises:
            ConfigurationError: The server's main module cannot be imported without being run.
        """
        from openenv_trl.server.process_worker import work

        ours, theirs = socket.socketpair()
        cut, lifeline = self._context.Pipe(duplex=False)
        process = self._context.Process(target=work, args=(theirs, cut, self._factory, mode), daemon=True)
        try:
            with _starting:
                self._ensure_fork_server()
                process.start()
        except (EOFError, ConnectionError) as error:
            ours.close()
            lifeline.close()
            raise ConfigurationError(
                "The process that environments are forked from has ended while it imported the server's main module. "
                'Put what starts the server there under: if __name__ == "__main__".'
            ) from error
        finally:
            theirs.close()
            cut.close()
        pid = process.pid
        assert pid is not None, "a process that was started has an id"
        return EnvironmentProcess(ours, pid, process, lifeline)

    def _ensure_fork_server(self) -> None:
        main = multiprocessing.spawn.get_preparation_data("")
        wanted = {
            "path": sys.path,
            "main": {key: value for key, value in main.items() if key.startswith("init_main")},
            "modules": ["openenv_trl.server.process_worker", *_modules_of(self._factory)],
        }
        os.environ[PRELOAD_VARIABLE] = json.dumps(wanted)
        try:
            # Without effect where it runs already; only then may imports be missing, and each fork makes up for it.
            multiprocessing.forkserver.set_forkserver_preload(["openenv_trl.server.process_preload"])
            multiprocessing.forkserver.ensure_running()
        finally:
            del os.environ[PRELOAD_VARIABLE]


def _modules_of(factory: Callable[[], Any]) -> list[str]:
    modules: list[str] = []
    while isinstance(factory, functools.partial):
        factory = factory.func
    name = getattr(factory, "__module__", None)
    if isinstance(name, str) and name != "__main__":
        modules.append(name)
    return modules
