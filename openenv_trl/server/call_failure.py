"""What a caller is told of a call that its environment did not carry out as it should."""

from __future__ import annotations

import logging
from asyncio import current_task

from pydantic import BaseModel

from openenv_trl.errors import (
    ActionValidationError,
    ConfigurationError,
    DeadlineExceededError,
    EnvironmentExecutionError,
    SessionStateError,
)

logger = logging.getLogger("openenv_trl.server")

ENDS_PROGRAMS = (SystemExit, KeyboardInterrupt)
"""What ends a program where it is not caught. An interrupt comes to a server as a signal: one raised in a call is the
environment's."""


def is_of_environment(error: BaseException) -> bool:
    """Whether an error that came out of a call is for its environment to answer for.

    The other ones are those of the server itself: a cancelled task, a coroutine that is closed when the loop has ended.
    """
    if isinstance(error, GeneratorExit):
        try:
            return current_task() is not None
        except RuntimeError:
            return False
    return isinstance(error, (Exception, *ENDS_PROGRAMS))


def failure_of(error: BaseException, where: str, call: str, session_id: str, about: dict[str, str]) -> Exception:
    """Return the error for the caller; the log gets the environment's own, with its traceback.

    Args:
        error: What the environment raised.
        where: What was running, for people.
        call: The call.
        session_id: The session.
        about: The ``extra`` of the log's record.
    """
    if call == "step" and isinstance(error, ActionValidationError):
        return error
    # The caller's mistake, and not the environment's.
    if isinstance(error, ActionValidationError | ConfigurationError | SessionStateError):
        logger.info("%s was refused in session %s: %s", where, session_id, error, extra=about)
    else:
        logger.error("%s raised in session %s", where, session_id, exc_info=error, extra=about)
    if isinstance(error, ConfigurationError):
        return ConfigurationError(str(error) or type(error).__name__, phase=call, session_id=session_id)
    return EnvironmentExecutionError(str(error) or type(error).__name__, phase=where, session_id=session_id)


def unexpected(value: object, call: str, expected: type[object], environment_name: str) -> str:
    """Return what to say of a hook that returned something else than it should."""
    if expected is BaseModel:
        return f"state of {environment_name} is a {type(value).__name__}, not a State"
    return f"{call} of {environment_name} returned a {type(value).__name__}, not an Observation"


def deadline_passed(
    call: str, session_id: str, limit_s: float, *, by_setting: bool, in_thread: bool
) -> DeadlineExceededError:
    """Return the error of a call that took too long.

    Args:
        call: The call.
        session_id: The session.
        limit_s: How long it may have taken.
        by_setting: Whether that is the server's own limit, and not the caller's.
        in_thread: Whether it runs in a thread.
    """
    text = f"Session {session_id}: its {call} took longer than its deadline of {limit_s:g} s"
    text += " (OPENENV_TRL_STEP_TIMEOUT_S of the server)" if by_setting else ""
    text += ", and the session ended with it."
    if in_thread:
        text += ' Its thread cannot be stopped: set EXECUTION = "process" on the environment to have it killed.'
    return DeadlineExceededError(text, phase=call, session_id=session_id)


def not_begun(call: str, running: str, deadline_s: float | None, session_id: str) -> DeadlineExceededError:
    """Return the error of a call whose turn did not come in time."""
    text = (
        f"Session {session_id}: its {running or 'last call'} still ran after {deadline_s:g} s, so the {call} that "
        "waited for it was not begun."
    )
    return DeadlineExceededError(text, phase=call, session_id=session_id)
