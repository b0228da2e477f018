"""The asynchronous client: one session on one server.

Promises: calls on one client wait for each other, and each gets its own reply; a session that was lost says so on
every later call and is never replaced in silence; what went wrong arrives as an error of its own type.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from typing_extensions import Self

from openenv_trl.client.address import server_address
from openenv_trl.client.connection import Connection
from openenv_trl.client.credentials import with_token
from openenv_trl.client.session import ClientState
from openenv_trl.client.transport import SocketSettings
from openenv_trl.errors import EnvironmentExecutionError, ProtocolError
from openenv_trl.types import StepResult, Tool
from openenv_trl.wire.rpc import NO_MCP_TEXT, RpcErrorCode, RpcFailure, parse_rpc_response, rpc_request
from openenv_trl.wire.tools import tool_of_mcp

if TYPE_CHECKING:
    from openenv_trl.client.sync_client import SyncEnvClient

ActT = TypeVar("ActT")
ObsT = TypeVar("ObsT")
StateT = TypeVar("StateT")


class EnvClient(ABC, Generic[ActT, ObsT, StateT]):
    """One session on an environment server. Subclass it for an environment's own types, or use `GenericEnvClient`.

    Args:
        base_url: The server's address: ``http://host:port``, ``ws://…``, or ``host:port``.
        connect_timeout_s: Seconds for the server to accept the connection.
        message_timeout_s: Seconds for the reply to a message; also for the environment to be built.
        max_message_size_mb: The longest reply taken, in MiB.
        websocket_ping_interval_s: Seconds between pings that tell a dead connection; None for none.
        websocket_ping_timeout_s: Seconds for the answer to a ping.
        headers: Sent with the handshake. Without an ``Authorization`` among them, the token in the environment variable
            OPENENV_TRL_TOKEN is sent as one, if it is set.

    Raises:
        ConfigurationError: ``base_url`` is no address of a server.

    Example:
        >>> async with GenericEnvClient("http://localhost:8000") as env:
        ...     result = await env.reset(seed=7)
        ...     result = await env.step({"move": "hit"})
    """

    def __init__(
        self,
        base_url: str,
        connect_timeout_s: float = 10.0,
        message_timeout_s: float = 60.0,
        max_message_size_mb: float = 100.0,
        websocket_ping_interval_s: float | None = 20.0,
        websocket_ping_timeout_s: float | None = 20.0,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._address = server_address(base_url)
        settings = SocketSettings(
            connect_timeout_s=connect_timeout_s,
            max_message_bytes=int(max_message_size_mb * 1024 * 1024),
            ping_interval_s=websocket_ping_interval_s,
            ping_timeout_s=websocket_ping_timeout_s,
            headers=with_token(headers),
        )
        self._connection = Connection(self._address, settings, message_timeout_s)

    @abstractmethod
    def _step_payload(self, action: ActT) -> dict[str, Any]:
        """Return the action as the data of a step message."""

    @abstractmethod
    def _parse_result(self, payload: dict[str, Any]) -> StepResult[ObsT]:
        """Return the result in the data of an observation message (``observation``, ``reward``, ``done``, …)."""

    @abstractmethod
    def _parse_state(self, payload: dict[str, Any]) -> StateT:
        """Return the state in the data of a state message."""

    @property
    def base_url(self) -> str:
        """The server's address, as it was given."""
        return self._address.base_url

    @property
    def is_open(self) -> bool:
        """Whether the session takes calls: it was connected, and its connection has not ended since."""
        return self._connection.is_open

    async def connect(self) -> Self:
        """Open the session and wait until the server holds an environment for it. Does nothing on an open session.

        The server accepts a connection before it knows whether it has a slot, and says nothing when it has. So this
        sends a JSON-RPC ``ping`` inside an ``mcp`` message: whatever is answered proves the session, except a refusal,
        and no server troubles its environment with it.

        Raises:
            ConnectionFailedError: No server answered at the address. Another try is allowed.
            SessionCapacityError: The server has no free slot. Another try is allowed.
            EnvironmentFactoryError: The environment's constructor raised.
            DeadlineExceededError: The environment was not built in time.
            SessionLostError: This client was connected before, and lost its session.
        """
        await self._connection.open()
        return self

    async def reset(self, **kwargs: Any) -> StepResult[ObsT]:
        """Begin an episode. The arguments (``seed``, ``episode_id``, the task's own) go to the environment's ``reset``.

        Raises:
            EnvironmentExecutionError: The environment raised.
            SessionLostError: The session is gone.
            DeadlineExceededError: No reply in time; the session is lost.
        """
        reply = await self._connection.call("reset", "reset", kwargs)
        return self._parse_result(reply.data)

    async def step(self, action: ActT, timeout_s: float | None = None) -> StepResult[ObsT]:
        """Take one step.

        Args:
            action: The action.
            timeout_s: Seconds for the reply; ``message_timeout_s`` if None.

        Raises:
            ActionValidationError: The action does not fit the environment's schema; ``errors`` names the fields.
            EnvironmentExecutionError: The environment raised.
            SessionLostError: The session is gone.
            DeadlineExceededError: No reply in time; the session is lost.
        """
        reply = await self._connection.call("step", "step", self._step_payload(action), timeout_s)
        return self._parse_result(reply.data)

    async def state(self) -> StateT:
        """Return where the episode stands.

        Raises:
            EnvironmentExecutionError: The environment raised.
            SessionLostError: The session is gone.
            DeadlineExceededError: No reply in time; the session is lost.
        """
        reply = await self._connection.call("state", "state")
        return self._parse_state(reply.data)

    async def list_tools(self) -> list[Tool]:
        """Return the tools that the environment offers; none where it, or an older server, offers none.

        Raises:
            EnvironmentExecutionError: The environment failed to list them.
            SessionLostError: The session is gone.
        """
        try:
            reply = await self._connection.call("list_tools", "mcp", rpc_request(1, "tools/list"))
        except ProtocolError as error:
            if (
                self._connection.state is ClientState.OPEN
            ):  # a server that knows no "mcp" message refused it, and goes on
                return []
            raise error
        result = parse_rpc_response(reply.data)
        if isinstance(result, RpcFailure):
            if NO_MCP_TEXT in result.message or result.code == RpcErrorCode.METHOD_NOT_FOUND:
                return []
            raise EnvironmentExecutionError(f"The environment could not list its tools: {result.message}")
        return [tool_of_mcp(entry) for entry in cast("list[dict[str, Any]]", result.get("tools") or [])]

    async def close(self) -> None:
        """End the session; once this returns the server's slot is free again (or the server did not answer in time).

        A call that still waits in another task gets a `SessionLostError`. May be called more than once.
        """
        await self._connection.close()

    def sync(self) -> SyncEnvClient[ActT, ObsT, StateT]:
        """Return a blocking client around this one."""
        from openenv_trl.client.sync_client import SyncEnvClient

        return SyncEnvClient(self)

    async def __aenter__(self) -> Self:
        return await self.connect()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
