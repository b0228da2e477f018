"""The process of one environment: builds it, and does what the server asks, one thing at a time.

Promises: it leads a process group of its own, and the whole group is killed as soon as the server is gone, however that
died and whatever runs here. Synchronous code runs in the main thread; a class with asynchronous hooks has an event loop
that also runs between calls.
"""

from __future__ import annotations

import inspect
import multiprocessing
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import anyio
import anyio.to_thread

from openenv_trl.environment import prepare
from openenv_trl.server.hooks import AnyEnvironment, EnvironmentFactory, hooks_of
from openenv_trl.server.process_frames import Call, Introduction, Raised, Returned, pack, receive
from openenv_trl.types import ServerMode

_F_SETSIG = 10  # Linux's fcntl: which signal tells of what happens to a file
_NOT_METHODS = frozenset({"reset", "step", "reset_async", "step_async", "call_tool", "list_tools", "close"})


def work(way: socket.socket, lifeline: Connection, factory: EnvironmentFactory, mode: ServerMode) -> None:
    """Be the process of one environment, to its end.

    Args:
        way: To the server.
        lifeline: Nothing comes over it; it breaks when the server is gone.
        factory: Builds the environment.
        mode: What the server is for.
    """
    os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the server's business; it ends this process
    _die_with_server(lifeline)
    multiprocessing.current_process().daemon = False  # so that the environment may have processes itself
    _seed_anew()
    way.setblocking(True)
    try:
        environment = factory()
        prepare(environment, mode, "process")
        hooks = hooks_of(type(environment))
        introduction = Introduction(hooks, environment.offered_tools(), _methods(type(environment)))
    except BaseException as error:  # boundary: a constructor may raise anything
        _send(way, pack(Raised.of(error)))
        return
    _send(way, pack(Returned(introduction)))
    if hooks.async_reset or hooks.async_step or hooks.async_tools or hooks.tool_calls_are_steps:
        anyio.run(_serve_on_loop, way, environment)
    else:
        _serve(way, environment)


def _serve(way: socket.socket, environment: AnyEnvironment) -> None:
    while (call := receive(way)) is not None:
        try:
            reply: Returned | Raised = Returned(_function(environment, call)())
        except BaseException as error:  # boundary: an environment may raise anything
            reply = Raised.of(error)
        _send(way, _packed(reply, call))


async def _serve_on_loop(way: socket.socket, environment: AnyEnvironment) -> None:
    while True:
        await anyio.wait_readable(way)
        call = receive(way)
        if call is None:
            return
        try:
            function = _function(environment, call)
            value = function() if _runs_on_loop(environment, call) else await anyio.to_thread.run_sync(function)
            reply: Returned | Raised = Returned(await value if inspect.isawaitable(value) else value)
        except Exception as error:  # boundary: an environment may raise anything
            reply = Raised.of(error)
        _send(way, _packed(reply, call))


def _send(way: socket.socket, message: bytes) -> None:
    try:
        way.sendall(message)
    except (BrokenPipeError, ConnectionResetError):  # the server has given this process up, and is about to kill it
        os.killpg(0, signal.SIGKILL)


def _function(environment: AnyEnvironment, call: Call) -> Callable[[], Any]:
    def function() -> Any:
        if call.attribute == "state":
            return environment.state
        return getattr(environment, call.attribute)(*call.args, **call.kwargs)

    return function


def _runs_on_loop(environment: AnyEnvironment, call: Call) -> bool:
    if call.attribute == "step_async" and environment.step_may_block(call.args[0]):
        call.attribute = "step"
    if call.attribute == "call_tool":
        return environment.runs_on_loop(call.args[0])
    if call.attribute == "tool_step":
        return environment.runs_on_loop(call.args[0].tool_name)
    return call.attribute == "state" or inspect.iscoroutinefunction(getattr(environment, call.attribute))


def _packed(reply: Returned | Raised, call: Call) -> bytes:
    try:
        return pack(reply)
    except Exception as error:  # boundary: pickling calls the code of whatever is in the value
        text = f"{call.attribute} was carried out, but its result cannot leave the environment's process: {error}"
        return pack(Raised(text, ""))


def _methods(environment_class: type[AnyEnvironment]) -> frozenset[str]:
    return frozenset(
        name
        for name in dir(environment_class)
        if not name.startswith("_") and name not in _NOT_METHODS and callable(getattr(environment_class, name, None))
    )


def _seed_anew() -> None:
    # Forks of one process would all draw the same random numbers. (Python's own generator is seeded after a fork.)
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None:
        numpy.random.seed()
    if torch is not None:
        torch.seed()


def _die_with_server(lifeline: Connection) -> None:
    if not sys.platform.startswith("linux"):
        threading.Thread(target=_wait_for_the_end, args=(lifeline,), daemon=True).start()
        return
    import fcntl

    # The kernel itself kills the group when the other end is closed, also under code that never lets Python run.
    fd = lifeline.fileno()
    fcntl.fcntl(fd, fcntl.F_SETOWN, -os.getpid())
    fcntl.fcntl(fd, _F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_ASYNC)
    _LIFELINES.append(lifeline)
    if lifeline.poll():  # it was closed before all this
        os.killpg(0, signal.SIGKILL)


def _wait_for_the_end(lifeline: Connection) -> None:
    lifeline.poll(None)
    os.killpg(0, signal.SIGKILL)


_LIFELINES: list[Connection] = []  # kept open as long as the process lives
