"""One session of the sandbox, as the server holds it: a keeper, and the worker that runs code.

Waiting is one file descriptor on the event loop, so an idle session costs no thread and no task.
The server reads and writes no file of a session: the worker does, with its own rights.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import anyio

from coding_env.sandbox.exchange import MAX_MESSAGE, MAX_REPLY, Exchange, Step
from coding_env.sandbox.inside import frames, keeper
from coding_env.sandbox.limits import Limits

_CHUNK = 1 << 16
_DRAIN_LIMIT = 1 << 20  # what a pipe holds at most
_AFTER_ITS_CHANNEL_S = 2.0  # for the keeper to tell of a worker's end
_KEEPER_IS_GONE = "The session's keeper is gone."


@dataclass
class Reply:
    """What came of a request.

    Attributes:
        data: The worker's reply; None where there is none.
        stdout: What was written to standard output meanwhile.
        stderr: What was written to standard error meanwhile.
        failure: Why there is no reply, for the agent; the worker is gone then.
        timed_out: Whether the time was up.
        unstarted: Whether there is no reply since no worker could be started: nothing was done, and the agent's code
            has no part in that.
        restarted: Whether the worker is a new one: names that were defined before are gone.
        others: Other messages of the worker's.
    """

    data: dict[str, Any] | None
    stdout: str
    stderr: str
    failure: str = ""
    timed_out: bool = False
    unstarted: bool = False
    restarted: bool = False
    others: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])


class _Worker:
    """The server's ends of what leads to a worker."""

    def __init__(self, frames_way: socket.socket, out: int, err: int) -> None:
        self.way = frames_way
        self.out = out
        self.err = err
        self.ready = False
        self.unsent = bytearray()

    def close(self) -> None:
        self.way.close()
        os.close(self.out)
        os.close(self.err)


def open_worker() -> tuple[_Worker, list[int]]:
    """Return the server's ends of a new worker's channels, and the descriptors for the other side to get."""
    ours, theirs = socket.socketpair()
    out_read, out_write = os.pipe()
    err_read, err_write = os.pipe()
    ours.setblocking(False)
    os.set_blocking(out_read, False)
    os.set_blocking(err_read, False)
    return _Worker(ours, out_read, err_read), [theirs.detach(), out_write, err_write]


class SandboxSession:
    """One session. Made by `Sandbox`.

    Args:
        control: To the keeper.
        worker: To the first worker, which the keeper starts by itself.
        limits: What the session may use.
        on_close: Called when it is over.
    """

    def __init__(
        self, control: socket.socket, worker: _Worker, limits: Limits, on_close: Callable[[], None] | None = None
    ) -> None:
        self.limits = limits
        self._on_close = on_close
        self._control = control
        self._control.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(control, selectors.EVENT_READ, "control")
        self._worker: _Worker | None = None
        self._attach(worker)
        self._rests = True
        self._restarted = False
        self._number = 0
        self._closed = False
        self._dead = ""
        self._unstarted = ""

    @property
    def usable(self) -> bool:
        """Whether requests can be made."""
        return not self._closed and not self._dead

    def is_sound(self) -> bool:
        """Whether nothing was heard of an end of it, or of its worker's; for one that nobody uses."""
        self._look_for_an_end()
        return self.usable and self._worker is not None

    async def request(
        self,
        operation: dict[str, Any],
        timeout_s: float,
        *,
        interruptible: bool = True,
        messages: int = 0,
        peer: socket.socket | None = None,
    ) -> Reply:
        """Ask the worker for something and wait for it.

        Args:
            operation: ``op`` and its arguments.
            timeout_s: Seconds, once the worker is ready, until it is interrupted, and killed a moment later.
            interruptible: Whether it is interrupted first.
            messages: How many messages the worker may send before its reply.
            peer: A socket for the worker to have; it is closed here.
        """
        exchange = self._begin(operation, timeout_s, interruptible, messages, peer)
        try:
            while not exchange.over:
                with anyio.move_on_after(exchange.wait_s(time.monotonic())):
                    await anyio.wait_readable(self._selector)  # pyright: ignore[reportArgumentType]
                self._pump(exchange)
        except BaseException:
            self.kill()  # a caller that is gone: what runs is never anyone else's
            raise
        return self._finish(exchange)

    def kill(self) -> None:
        """Kill the worker with all that it started. The next request has a new one; files stay."""
        if self._worker is not None:
            self._tell(keeper.KILL)
            self._detach()

    def close(self) -> None:
        """End the session: all its processes die, and its files are gone. May be called again."""
        if self._closed:
            return
        self._closed = True
        self._detach()
        self._selector.close()
        self._control.close()
        if self._on_close is not None:
            self._on_close()

    def _begin(
        self,
        operation: dict[str, Any],
        timeout_s: float,
        interruptible: bool,
        messages: int,
        peer: socket.socket | None,
    ) -> Exchange:
        self._number += 1
        self._unstarted = ""
        if self._worker is not None:
            self._look_for_an_end()
        if self.usable and self._worker is None:
            self._start_worker()
        worker = self._worker
        max_reply = MAX_REPLY.get(operation["op"], MAX_MESSAGE)
        now = time.monotonic()
        exchange = Exchange(self._number, self.limits, timeout_s, interruptible, now, messages, max_reply)
        if worker is None:
            exchange.ended(None)
            return exchange
        if self._rests:
            self._tell(keeper.WORK)
            self._rests = False
        if worker.ready:
            exchange.ready(time.monotonic())
        data = frames.pack({**operation, "id": self._number})
        if peer is not None:
            with peer, contextlib.suppress(OSError):
                data = data[socket.send_fds(worker.way, [data[:1]], [peer.fileno()]) :]
        worker.unsent += data
        self._send(worker)
        return exchange

    def _start_worker(self) -> None:
        worker, descriptors = open_worker()
        try:
            socket.send_fds(self._control, [keeper.START], descriptors)
        except OSError:
            self._dead = _KEEPER_IS_GONE
            worker.close()
            return
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        self._attach(worker)
        self._rests = self._restarted = True

    def _pump(self, exchange: Exchange) -> None:
        for key, _ in self._selector.select(0):
            if exchange.over or self._worker is None:
                break
            if key.data == "control":
                self._heed(exchange)
            elif key.data == "frames":
                self._send(self._worker)
                self._obey(self._read_frames(self._worker, exchange))
            else:
                data = _read(key.fd)
                if data == b"":
                    self._selector.unregister(key.fd)
                elif data:
                    self._obey(exchange.output(data, error=key.data == "err"))
        self._obey(exchange.tick(time.monotonic()))

    def _obey(self, step: Step) -> None:
        if step is Step.KILL:
            self.kill()
        elif step is Step.INTERRUPT:
            self._tell(keeper.INTERRUPT)

    def _tell(self, word: bytes) -> None:
        """Tell the keeper something; where it is gone, the next look at its channel says so."""
        with contextlib.suppress(OSError):
            self._control.send(word)

    def _read_frames(self, worker: _Worker, exchange: Exchange) -> Step:
        try:
            data = worker.way.recv(_CHUNK)
        except BlockingIOError:
            return Step.WAIT
        except OSError:
            data = b""
        if data:
            step = exchange.frame_bytes(data, time.monotonic())
            worker.ready = exchange.is_ready
            return step
        self._selector.unregister(worker.way)
        exchange.hurry(time.monotonic() + _AFTER_ITS_CHANNEL_S)
        return Step.WAIT

    def _heed(self, exchange: Exchange) -> None:
        message = self._told()
        if message is None:
            return
        self._hear(message)
        if self._worker is not None:
            self._drain(self._worker, exchange)
        exchange.ended(message.get("ended"))
        self._detach()

    def _told(self) -> dict[str, Any] | None:
        try:
            try:
                data = self._control.recv(keeper.MAX_MESSAGE)
            except ConnectionResetError:  # told once, where it ended with a word of ours unread; its last may be there
                data = self._control.recv(keeper.MAX_MESSAGE)
        except BlockingIOError:
            return None
        except OSError:
            data = b""
        return frames.Unpacker(keeper.MAX_MESSAGE).feed(data)[0] if data else {"failed": ""}

    def _look_for_an_end(self) -> None:
        """Hear of a worker that has ended since the last request."""
        message = self._told()
        if message is not None:
            self._hear(message)
            self._detach()

    def _hear(self, message: dict[str, Any]) -> None:
        """Take that the worker is gone, or all of the session: before it was ready, no code has a part in that."""
        if "ended" not in message:
            self._dead = str(message.get("failed") or _KEEPER_IS_GONE)
        is_new = self._worker is not None and not self._worker.ready
        if "unstarted" in message or (is_new and not message.get("failed")):
            told = message.get("unstarted")
            self._unstarted = self._dead or (told if isinstance(told, str) else "its process ended at its start.")

    def _finish(self, exchange: Exchange) -> Reply:
        if self._worker is not None and exchange.reply is not None:
            self._drain(self._worker, exchange)
            self._tell(keeper.REST)
            self._rests = True
        restarted, self._restarted = self._restarted, False
        return Reply(
            data=exchange.reply,
            stdout=exchange.out.text(),
            stderr=exchange.err.text(),
            failure=(self._dead or self._unstarted or exchange.failure) if exchange.reply is None else "",
            timed_out=exchange.timed_out,
            unstarted=exchange.reply is None and (bool(self._unstarted) or exchange.never_ready),
            restarted=restarted,
            others=exchange.others,
        )

    def _drain(self, worker: _Worker, exchange: Exchange) -> None:
        """Read what is in the pipes now: it was written before the reply."""
        for descriptor, is_error in ((worker.out, False), (worker.err, True)):
            left = _DRAIN_LIMIT
            while left > 0 and (data := _read(descriptor)):
                exchange.output(data, error=is_error)
                left -= len(data)

    def _send(self, worker: _Worker) -> None:
        try:
            while worker.unsent:
                del worker.unsent[: worker.way.send(worker.unsent)]
        except BlockingIOError:
            pass
        except OSError:
            worker.unsent.clear()
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if worker.unsent else 0)
        with contextlib.suppress(KeyError):
            if self._selector.get_key(worker.way).events != events:
                self._selector.modify(worker.way, events, "frames")

    def _attach(self, worker: _Worker) -> None:
        self._worker = worker
        self._selector.register(worker.way, selectors.EVENT_READ, "frames")
        self._selector.register(worker.out, selectors.EVENT_READ, "out")
        self._selector.register(worker.err, selectors.EVENT_READ, "err")

    def _detach(self) -> None:
        worker, self._worker = self._worker, None
        if worker is None:
            return
        for each in (worker.way, worker.out, worker.err):
            with contextlib.suppress(KeyError):
                self._selector.unregister(each)
        worker.close()


def _read(descriptor: int) -> bytes | None:
    try:
        return os.read(descriptor, _CHUNK)
    except BlockingIOError:
        return None
    except OSError:
        return b""
