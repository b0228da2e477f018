"""One request to a worker and its reply, as a pure object: it takes bytes and the time and returns decisions.

Whatever comes out of a sandbox may be a lie or garbage. Too much output, what is no frame, and a worker that has ended
all end the exchange; none of it raises.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

from coding_env.sandbox.inside import frames
from coding_env.sandbox.limits import Limits
from coding_env.sandbox.output import CappedOutput

MAX_REPLY = {"read": 1 << 17, "list": 1 << 18, "export": 1 << 19}
"""Bytes of one reply about files, by operation: what ``inside/files.py`` gives at most, in base64."""
MAX_MESSAGE = 1 << 14
"""Bytes of any other reply or message: an exit code, an error, a verdict. Output comes by pipes."""
READY_TIMEOUT_S = 60.0
"""Seconds that a new worker may take until it is ready: a thousand times what it does, for a busy machine."""
GRACE_S = 0.5
"""Seconds between the interrupt and the kill: so long that Python code can end in order."""


class Step(Enum):
    """What is to be done about a worker."""

    WAIT = "wait for more"
    INTERRUPT = "interrupt it"
    KILL = "kill it"
    DONE = "nothing more: the exchange is over"


class Exchange:
    """Waits for one reply.

    Args:
        number: The request's number, which the reply repeats.
        limits: How much output there may be.
        timeout_s: Seconds that the worker may take, once it is ready.
        interruptible: Whether the worker is interrupted before it is killed.
        now: The time.
        messages: How many other messages may come before the reply. One more is none that the sandbox sent.
        max_reply: Bytes of a reply or message at most.
    """

    def __init__(
        self,
        number: int,
        limits: Limits,
        timeout_s: float,
        interruptible: bool,
        now: float,
        messages: int = 0,
        max_reply: int = MAX_MESSAGE,
    ) -> None:
        self._messages = messages
        self._number = number
        self._limits = limits
        self._timeout_s = timeout_s
        self._interruptible = interruptible
        self._deadline = now + READY_TIMEOUT_S
        self.is_ready = False
        """Whether the worker was there already, or has come."""
        self._interrupted = False
        self._replies = frames.Unpacker(max_reply, flat=True)
        self.out = CappedOutput(limits.output_bytes)
        self.err = CappedOutput(limits.output_bytes)
        self.reply: dict[str, Any] | None = None
        self.failure = ""
        """Why there is no reply: a sentence for the agent."""
        self.timed_out = False
        self.never_ready = False
        """Whether it is over because the worker was not there in time."""
        self.others: list[dict[str, Any]] = []
        """Messages that came before the reply."""

    @property
    def over(self) -> bool:
        """Whether nothing more will come."""
        return self.reply is not None or bool(self.failure)

    def wait_s(self, now: float) -> float:
        """How long to wait for bytes before `tick` is to be called."""
        return max(0.0, self._deadline - now)

    def ready(self, now: float) -> None:
        """Take that the worker is ready: its time begins."""
        if not self.is_ready:
            self.is_ready = True
            self._deadline = now + self._timeout_s

    def output(self, data: bytes, *, error: bool) -> Step:
        """Take bytes of standard output or error."""
        (self.err if error else self.out).feed(data)
        if self.out.total + self.err.total > self._limits.discarded_mb << 20:
            return self._fail(f"The run was killed: it wrote more than {self._limits.discarded_mb} MB of output.")
        return Step.WAIT

    def frame_bytes(self, data: bytes, now: float) -> Step:
        """Take bytes of the worker's own channel."""
        try:
            messages = self._replies.feed(data)
        except frames.BrokenFrameError:
            return self._fail("The run was killed: it wrote into the sandbox's own channel.")
        for message in messages:
            if message.get("id") == self._number:
                self.reply = message
                return Step.DONE
            if "ready" in message and not self.is_ready:
                self.ready(now)
                continue
            if len(self.others) == self._messages:
                return self._fail("The run was killed: it wrote into the sandbox's own channel.")
            self.others.append(message)
        return Step.WAIT

    def hurry(self, deadline: float) -> None:
        """Take that the worker's channel has ended, while nobody told of the worker's own end yet."""
        self._deadline = min(self._deadline, deadline)
        self._interruptible = False

    def ended(self, exit_code: int | None) -> Step:
        """Take that the worker's process is gone, with its exit code or minus its signal; None if unknown."""
        if not self.over:
            self._fail(_told(exit_code, self._limits))
        return Step.DONE

    def tick(self, now: float) -> Step:
        """Take the time."""
        if self.over or now < self._deadline:
            return Step.WAIT
        if not self.is_ready:
            self.never_ready = True
            return self._fail("The interpreter did not start in time.")
        self.timed_out = True
        if self._interruptible and not self._interrupted:
            self._interrupted = True
            self._deadline = now + GRACE_S
            return Step.INTERRUPT
        return self._fail("The run was killed: its time was up, and it could not be interrupted.")

    def _fail(self, text: str) -> Step:
        self.failure = text
        return Step.KILL


def _told(exit_code: int | None, limits: Limits) -> str:
    if exit_code == -24:
        return f"The process was killed: it used its {limits.cpu_s} s of processor time."
    if exit_code == -9:
        return "The process was killed: it used too much memory or processor time."
    if exit_code is not None and exit_code < 0:
        return f"The process was ended by signal {-exit_code}."
    if exit_code is not None:
        return f"The process ended itself with exit code {exit_code}."
    return "The process ended."
