"""From what went wrong in an attempt to the reason that its episode ends with; and whose doing it was."""

from __future__ import annotations

import signal
import threading

import anyio
import anyio.lowlevel

from openenv_trl.errors import (
    ConfigurationError,
    ConnectionFailedError,
    DeadlineExceededError,
    ProtocolError,
    SessionCapacityError,
    SessionCreationError,
    SessionStateError,
)
from openenv_trl.rollout.trajectory import EndReason


class EpisodeFailed(Exception):
    """An attempt at an episode failed, for a reason; never leaves the engine.

    Args:
        reason: The reason.
        message: What happened.
        is_final: Whether no other attempt can go better, whatever is tried again otherwise.
    """

    def __init__(self, reason: EndReason, message: str, *, is_final: bool = False) -> None:
        super().__init__(message)
        self.reason = reason
        self.is_final = is_final


def failure_of(error: BaseException, phase: str) -> EpisodeFailed:
    """Name what an environment's call raised.

    Args:
        error: What was raised.
        phase: The call: "connect", "reset" or "step".
    """
    name = type(error).__name__
    text = str(error) or name
    if not isinstance(error, Exception):
        text = f"the environment raised {name}" + (f": {error}" if str(error) else "")
    return EpisodeFailed(_reason(error, phase), f"{phase}: {text}")


async def is_of_the_call(error: BaseException) -> bool:
    """Whether an error was raised by the code that was called, and is no end that this run was told from outside.

    Environments and policies in this process may raise what they like, also what is meant to end a program. It is
    theirs, unless the user pressed Ctrl-C, the run is being cancelled, or its coroutine is being closed.

    Raises:
        BaseException: The cancellation of this task, where it is being cancelled.
    """
    if isinstance(error, Exception):
        return True
    try:
        anyio.get_current_task()
    except RuntimeError:
        return False  # nothing runs us any more: the coroutine is being closed, and must not wait for anything
    if _holds(error, KeyboardInterrupt) and _an_interrupt_is_raised_here():
        return False
    if _holds(error, anyio.get_cancelled_exc_class()):
        await anyio.lowlevel.checkpoint_if_cancelled()
    return True


def _holds(error: BaseException, kind: type[BaseException]) -> bool:
    """Whether it is such an error, or a group with one."""
    return isinstance(error, kind) or any(_holds(inner, kind) for inner in getattr(error, "exceptions", ()))


def _an_interrupt_is_raised_here() -> bool:
    """Whether Ctrl-C arrives as an exception in this thread; where a loop handles it, it arrives as a cancellation."""
    is_main = threading.current_thread() is threading.main_thread()
    return is_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler


def _reason(error: BaseException, phase: str) -> EndReason:
    if isinstance(error, ConfigurationError) and phase != "connect":
        return EndReason.CONFIGURATION_ERROR
    if isinstance(error, SessionCreationError):
        return EndReason.CREATION_FAILED
    if phase == "connect":
        if isinstance(error, (SessionCapacityError, TimeoutError)):
            return EndReason.CAPACITY
        out_of_reach = isinstance(error, (OSError, EOFError, ProtocolError, SessionStateError))
        return EndReason.CONNECT_FAILED if out_of_reach else EndReason.CREATION_FAILED
    if isinstance(error, (DeadlineExceededError, TimeoutError)):
        return EndReason.RESET_TIMEOUT if phase == "reset" else EndReason.STEP_TIMEOUT
    if isinstance(error, ProtocolError):
        return EndReason.PROTOCOL_ERROR
    if isinstance(error, (ConnectionFailedError, ConnectionError, EOFError)):
        return EndReason.SESSION_LOST
    # Sessions may be anyone's code, and an environment in the same process raises what it likes.
    return EndReason.ENVIRONMENT_ERROR
