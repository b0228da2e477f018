"""Error frames: what a server says went wrong, and the exception that a client raises for it.

A `Fault` stands between the two. The server makes it from an exception and encodes it; the client decodes
it and makes an exception of the package's tree from it, so that no caller ever reads a code out of a text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, cast

from pydantic import ValidationError

from openenv_trl.errors import (
    ActionValidationError,
    ConfigurationError,
    DeadlineExceededError,
    EnvironmentExecutionError,
    EnvironmentFactoryError,
    OpenEnvError,
    ProtocolError,
    SessionCapacityError,
    SessionLostError,
    SessionNotFoundError,
)
from openenv_trl.wire.codec import encode
from openenv_trl.wire.field_errors import error_list


class WSErrorCode(str, Enum):
    """The codes of error frames."""

    INVALID_JSON = "INVALID_JSON"
    UNKNOWN_TYPE = "UNKNOWN_TYPE"
    VALIDATION_ERROR = "VALIDATION_ERROR"
    EXECUTION_ERROR = "EXECUTION_ERROR"
    CAPACITY_REACHED = "CAPACITY_REACHED"
    FACTORY_ERROR = "FACTORY_ERROR"
    SESSION_ERROR = "SESSION_ERROR"


CONFIGURATION = {"reason": "configuration"}
"""What tells, beside a code that the public package knows too, that an environment was asked for what it cannot do."""


def is_configuration(details: object) -> bool:
    """Whether the details of a fault, or the data of a failed JSON-RPC call, say that it was asked for in vain."""
    return isinstance(details, Mapping) and cast("Mapping[str, Any]", details).get("reason") == CONFIGURATION["reason"]


@dataclass(frozen=True)
class Fault:
    """One error frame.

    Attributes:
        message: What went wrong, for a person.
        code: A `WSErrorCode`, or another server's own code as a string.
        details: Further keys of the frame: ``errors``, ``active_sessions``, ``max_sessions``,
            ``factory_name``, ``reason``.
    """

    message: str
    code: str
    details: dict[str, Any] = field(default_factory=dict[str, Any])

    def encode(self) -> bytes:
        """Return the frame's JSON."""
        data = {"message": self.message, "code": str.__str__(self.code), **self.details}
        return encode({"type": "error", "data": data})


def validation_fault(error: ValidationError, message: str = "Invalid message") -> Fault:
    """Return the fault of a message or an action that does not fit its model."""
    return Fault(message, WSErrorCode.VALIDATION_ERROR.value, {"errors": error_list(error)})


def fault_of(error: Exception) -> Fault:
    """Return the fault that tells a client of an exception of its session.

    An `ActionValidationError` blames the caller, and so does a `ConfigurationError`, for which the public wire has no
    code: it goes by that of any exception, with a ``reason`` that our clients know. Everything else that an environment
    raises, pydantic's own errors included, is the environment's.
    """
    if isinstance(error, ActionValidationError):
        return Fault(str(error), WSErrorCode.VALIDATION_ERROR.value, {"errors": error.errors})
    if isinstance(error, SessionCapacityError):
        active, most = error.active_sessions, error.max_sessions
        details: dict[str, Any] = {"active_sessions": active, "max_sessions": most}
        if error.draining:
            return Fault(str(error), WSErrorCode.CAPACITY_REACHED.value, {**details, "reason": "draining"})
        text = f"Server at capacity: {active}/{most} sessions active. Cannot accept new connections."
        return Fault(text, WSErrorCode.CAPACITY_REACHED.value, details)
    if isinstance(error, EnvironmentFactoryError):
        return Fault(str(error), WSErrorCode.FACTORY_ERROR.value, {"factory_name": error.factory_name})
    reason = _reason_of(error)
    if reason is not None:
        return Fault(str(error), WSErrorCode.SESSION_ERROR.value, {"reason": reason})
    message = str(error) or type(error).__name__
    if isinstance(error, ConfigurationError):
        return Fault(message, WSErrorCode.EXECUTION_ERROR.value, dict(CONFIGURATION))
    if isinstance(error.__cause__, ValidationError) or isinstance(error, ValidationError):
        message = f"The environment's own code refused a value; what the client sent had been accepted: {message}"
    return Fault(message, WSErrorCode.EXECUTION_ERROR.value)


def _reason_of(error: Exception) -> str | None:
    """Why a session has ended, in a word for the other side's program; None where it goes on."""
    if isinstance(error, DeadlineExceededError):
        return "deadline"
    if isinstance(error, SessionLostError | SessionNotFoundError):
        return "lost"
    return None


def error_of(fault: Fault, *, phase: str) -> OpenEnvError:
    """Return the exception that a client raises for a fault which answered the call named by ``phase``."""
    details = fault.details
    if fault.code == WSErrorCode.VALIDATION_ERROR and phase == "step":
        return _validation_error(fault)
    if fault.code == WSErrorCode.EXECUTION_ERROR and is_configuration(details) and phase != "connect":
        return ConfigurationError(fault.message, phase=phase)
    if fault.code in (WSErrorCode.EXECUTION_ERROR, WSErrorCode.VALIDATION_ERROR):
        return EnvironmentExecutionError(f"The environment failed in {phase}: {fault.message}", phase=phase)
    if fault.code == WSErrorCode.CAPACITY_REACHED:
        return _capacity_error(fault)
    if fault.code == WSErrorCode.FACTORY_ERROR:
        return EnvironmentFactoryError(
            str(details.get("factory_name", "")), f"{fault.message} The server's log tells why."
        )
    if fault.code == WSErrorCode.SESSION_ERROR:
        if details.get("reason") == "deadline":
            return DeadlineExceededError(f"{fault.message} The session is lost.", phase=phase)
        kind = SessionNotFoundError if fault.message.startswith("Unknown session_id") else SessionLostError
        return kind(f"The server ended the session in {phase}: {fault.message}", phase=phase)
    return ProtocolError(f"The server refused the {phase} message: {fault.message} ({fault.code})", phase=phase)


def _validation_error(fault: Fault) -> ActionValidationError:
    found = fault.details.get("errors")
    listed = cast("list[Any]", found) if isinstance(found, list) else []
    errors = [cast("dict[str, Any]", each) for each in listed if isinstance(each, dict)]
    message = fault.message
    if errors and message == "Invalid message":
        fields = "; ".join(f"{'.'.join(map(str, e.get('loc', ()))) or 'action'}: {e.get('msg', '')}" for e in errors)
        message = f"The action does not fit the environment's action schema: {fields}"
    return ActionValidationError(message, errors=errors)


def _capacity_error(fault: Fault) -> SessionCapacityError:
    active, most = fault.details.get("active_sessions"), fault.details.get("max_sessions")
    if not isinstance(active, int) or not isinstance(most, int):
        found = re.search(r"(\d+)/(\d+)", fault.message)
        active, most = (int(found[1]), int(found[2])) if found else (0, 0)
    if fault.details.get("reason") == "draining":
        return SessionCapacityError(active, most, fault.message, draining=True)
    return SessionCapacityError(active, most)
