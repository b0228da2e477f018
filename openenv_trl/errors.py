"""One tree of errors. Each says its phase, its session, and whether another try can help.

    OpenEnvError
    ├── ConfigurationError (ValueError)         what the user set or asked for cannot be; names what to change
    │   └── ConcurrencyConfigurationError       more sessions than the environment class allows
    ├── ConnectionFailedError (ConnectionError) no server answered
    ├── SessionCapacityError                    the server has no free session now
    ├── SessionLostError (ConnectionError)      the session's connection ended; its environment is gone
    ├── SessionNotFoundError                    no such session on the server
    ├── SessionCreationError                    the server could not open a session
    │   └── EnvironmentFactoryError             ... because the environment's constructor raised
    ├── SessionStateError                       a call that the session's present state does not allow
    ├── DeadlineExceededError (TimeoutError)    a phase took longer than its deadline
    ├── ProtocolError                           the peer sent something that is not the protocol
    ├── ActionValidationError (ValueError)      the action does not fit the environment's schema
    ├── EnvironmentExecutionError               the environment raised in reset, step or state
    ├── ToolCallError (RuntimeError)            a tool of the environment failed, or was called wrongly; says which
    ├── PolicyError                             the policy could not generate
    ├── RolloutFailureError                     too many episodes failed for their result to mean anything
    └── ProviderError                           a server could not be started or stopped
        └── ServerStartError                    ... it ended, or was not ready in time; carries its log's tail

Every error is also a child of the standard error that it stands for, so ``except TimeoutError`` works.
"""

from __future__ import annotations

from typing import Any, ClassVar


class OpenEnvError(Exception):
    """Base of every error of this package.

    Attributes:
        phase: What was going on: "connect", "reset", "step", "state", "close", "generate", "start", or "" if unknown.
        session_id: The session concerned, or None.
        retryable: Whether the same work can succeed in a fresh session.
    """

    retryable: ClassVar[bool] = False

    def __init__(self, message: str, *, phase: str = "", session_id: str | None = None) -> None:
        super().__init__(message)
        self.phase = phase
        self.session_id = session_id


class ConfigurationError(OpenEnvError, ValueError):
    """A setting of the user's that cannot work. The message says what to change.

    An environment raises it for what it is asked in vain, such as a reset to a game that there is not. It then reaches
    the caller as one, in the environment's own words, wherever the environment runs: asking again does not help.
    """


class ConcurrencyConfigurationError(ConfigurationError):
    """More than one session was asked for, of an environment class that allows only one."""

    def __init__(self, environment_name: str, max_concurrent_envs: int) -> None:
        super().__init__(
            f"max_concurrent_envs={max_concurrent_envs}, but {environment_name} does not declare that several "
            f"instances can live in one process. Set SUPPORTS_CONCURRENT_SESSIONS = True on the class if its "
            f"instances share no state, or pass max_concurrent_envs=1."
        )
        self.environment_name = environment_name
        self.max_concurrent_envs = max_concurrent_envs


class ConnectionFailedError(OpenEnvError, ConnectionError):
    """No environment server answered at the address."""

    retryable = True


class SessionCapacityError(OpenEnvError):
    """The server has as many sessions as it allows. Wait for one to end, or allow more."""

    retryable = True

    def __init__(
        self, active_sessions: int, max_sessions: int, message: str | None = None, *, draining: bool = False
    ) -> None:
        super().__init__(
            message
            or f"Server at capacity: {active_sessions}/{max_sessions} sessions active. "
            "Wait for a session to end, or start the server with a larger max_concurrent_envs.",
            phase="connect",
        )
        self.active_sessions = active_sessions
        self.max_sessions = max_sessions
        self.draining = draining
        """Whether the server takes no new sessions at all: it is shutting down."""


class SessionLostError(OpenEnvError, ConnectionError):
    """The connection of a session ended, and with it the environment that it held."""

    retryable = True


class SessionNotFoundError(OpenEnvError):
    """The server knows no session of that id."""

    retryable = True


class SessionCreationError(OpenEnvError):
    """The server could not open a session."""

    retryable = True


class EnvironmentFactoryError(SessionCreationError):
    """The environment's constructor raised on the server."""

    def __init__(self, factory_name: str, message: str | None = None) -> None:
        super().__init__(message or f"Environment factory '{factory_name}' failed to create instance.", phase="connect")
        self.factory_name = factory_name


class SessionStateError(OpenEnvError):
    """A call that the present state of the client or session does not allow."""


class DeadlineExceededError(OpenEnvError, TimeoutError):
    """A phase took longer than its deadline."""

    retryable = True


class ProtocolError(OpenEnvError):
    """The peer sent something that is not the OpenEnv protocol."""

    retryable = True


class ActionValidationError(OpenEnvError, ValueError):
    """The action does not fit the environment's action schema. The environment did not move.

    Attributes:
        errors: One dict a field, as pydantic gives them (``loc``, ``msg``, ``type``, ``input``).
    """

    def __init__(
        self, message: str, *, errors: list[dict[str, Any]] | None = None, session_id: str | None = None
    ) -> None:
        super().__init__(message, phase="step", session_id=session_id)
        self.errors = errors or []


class EnvironmentExecutionError(OpenEnvError):
    """The environment itself raised in reset, step or state."""

    retryable = True


class ToolCallError(OpenEnvError, RuntimeError):
    """A client's call of one of its environment's tools failed. The session goes on.

    Attributes:
        tool_name: The tool.
        error_type: Whose fault it was: "execution_error", "invalid_args", "tool_not_found", "timeout" or
            "transport_error".
    """

    def __init__(self, tool_name: str, error_type: str, message: str) -> None:
        super().__init__(f"Tool '{tool_name}' failed ({error_type}): {message}", phase="call_tool")
        self.tool_name = tool_name
        self.error_type = error_type


class PolicyError(OpenEnvError):
    """The policy could not generate."""


class RolloutFailureError(OpenEnvError):
    """Too many episodes failed for their result to mean anything. The message has the reasons."""


class ProviderError(OpenEnvError):
    """An environment server could not be started, watched or stopped."""


class ServerStartError(ProviderError):
    """An environment server ended before it was ready, or was not ready in time.

    Attributes:
        log_tail: The last lines that the server wrote.
    """

    def __init__(self, message: str, *, log_tail: str = "") -> None:
        super().__init__(f"{message}\n{log_tail}".rstrip(), phase="start")
        self.log_tail = log_tail
