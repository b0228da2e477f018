"""The asynchronous client: one session on one server.

Promises: calls on one client wait for each other, and each gets its own reply; a session that was lost says so on
every later call and is never replaced in silence; what went wrong arrives as an error of its own type; a server that
the client started is stopped with it.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Generator, Mapping
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from typing_extensions import Self

from openenv_trl.client.address import ServerAddress, server_address
from openenv_trl.client.credentials import with_token
from openenv_trl.client.held_session import HeldSession
from openenv_trl.client.mode import client_mode
from openenv_trl.client.owned_server import ImageServer, OwnedServer
from openenv_trl.client.peers import Link, LinkSettings, Wire, choose_link
from openenv_trl.client.transport import SocketSettings
from openenv_trl.errors import (
    ConfigurationError,
    EnvironmentExecutionError,
    ProtocolError,
)
from openenv_trl.types import StepResult, Tool
from openenv_trl.wire.faults import is_configuration
from openenv_trl.wire.frames import Reply, RequestType
from openenv_trl.wire.observations import says_that_others_wait
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
        base_url: The server's address: ``http://host:port``, ``ws://…``, or ``host:port``. None where the provider
            starts the server.
        connect_timeout_s: Seconds for the server to accept the connection.
        message_timeout_s: Seconds for the reply to a message; also for the environment to be built.
        max_message_size_mb: The longest reply taken, in MiB.
        websocket_ping_interval_s: Seconds of silence before a ping, which tells a dead connection; None for no pings.
        websocket_ping_timeout_s: Seconds for the answer to a ping.
        provider: Stops the server when the client is closed; without a ``base_url``, it also starts it when the client
            connects. See `openenv_trl.client.owned_server`.
        mode: "simulation" or "production"; kept for environments' own clients, and changes nothing here. By default
            what the environment variable OPENENV_CLIENT_MODE says.
        headers: Sent with the handshake. Without an ``Authorization`` among them, the token in the environment variable
            OPENENV_TRL_TOKEN is sent as one, if it is set.
        wait_for_slot_s: Seconds to wait for a session where the server has none free. A server of this package keeps
            its clients in a fair line; others are asked again and again.
        wire: "auto" speaks this package's native wire where the server does, and OpenEnv's where not; "native" or
            "openenv" allow only that one. On the native wire the clients of an event loop share one connection.

    Raises:
        ConfigurationError: ``base_url`` is no address of a server, or there is neither that nor a provider.

    Example:
        >>> async with GenericEnvClient("http://localhost:8000") as env:
        ...     result = await env.reset(seed=7)
        ...     result = await env.step({"move": "hit"})
    """

    def __init__(
        self,
        base_url: str | None = None,
        connect_timeout_s: float = 10.0,
        message_timeout_s: float = 60.0,
        max_message_size_mb: float = 100.0,
        websocket_ping_interval_s: float | None = 20.0,
        websocket_ping_timeout_s: float | None = 20.0,
        provider: Any = None,
        mode: str | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        wait_for_slot_s: float = 0.0,
        wire: Wire = "auto",
    ) -> None:
        if base_url is None and provider is None:
            raise ConfigurationError(
                "Give base_url, the server's address, such as http://localhost:8000; or a provider that starts one."
            )
        self._mode_name = client_mode(mode)
        self._message_timeout_s = message_timeout_s
        self._wire: Wire = wire
        self._socket_settings = SocketSettings(
            connect_timeout_s=connect_timeout_s,
            max_message_bytes=int(max_message_size_mb * 1024 * 1024),
            ping_interval_s=websocket_ping_interval_s,
            ping_timeout_s=websocket_ping_timeout_s,
            headers=with_token(headers, base_url),
        )
        self._begin(
            HeldSession(
                None if base_url is None else server_address(base_url),
                self._new_link,
                wait_for_slot_s=wait_for_slot_s,
                owned=None if provider is None else OwnedServer(provider, running=base_url is not None),
            )
        )

    def _begin(self, session: HeldSession) -> None:
        self._session = session
        self._children: list[EnvClient[ActT, ObsT, StateT]] = []
        self._blocking: SyncEnvClient[ActT, ObsT, StateT] | None = None
        self._others_wait = False

    @classmethod
    def from_docker_image(cls, image: str, provider: Any = None, **start_arguments: Any) -> Self:
        """Return a client whose server runs in a container of this image, from `connect` until `close`.

        It can be awaited (``await Client.from_docker_image(...)`` connects), entered with ``with`` or ``async with``,
        and turned into a blocking one with `sync`. Should the container end by itself, the client's next error says so,
        with its last lines.

        Args:
            image: The image's name.
            provider: What runs it: a container provider of this package, or any object with
                ``start_container(image, …)``, ``wait_for_ready(base_url)`` and ``stop_container()``. If None, this
                machine's Docker engine runs it (`LocalDockerProvider`).
            start_arguments: Further arguments of ``start_container``: ``env_vars``, ``port``, and the provider's own
                fields, such as ``memory="512m"``.

        Raises:
            ConfigurationError: The provider cannot be started so, or a field of it is wrong.

        Example:
            >>> async with GenericEnvClient.from_docker_image("echo-env:latest") as env:
            ...     result = await env.reset()
        """
        if provider is None:
            from openenv_trl.providers.docker import LocalDockerProvider

            provider = LocalDockerProvider()
        return cls(provider=ImageServer(provider, image, start_arguments))

    @classmethod
    def from_env(
        cls, repo_id: str, *, use_docker: bool = True, provider: Any = None, tag: str = "latest", **start_arguments: Any
    ) -> Self:
        """Return a client whose server is that of a repository of the Hugging Face Hub, run here.

        Either way code of that repository runs on this machine, in a container or as a process: look at it first. To
        use its running Space instead, pass ``provider=SpaceProvider("owner/name")`` to the client.

        Args:
            repo_id: The repository, ``owner/name``.
            use_docker: Whether to run the image of its Space, as `from_docker_image` does. Otherwise the repository is
                fetched and served by ``uv run`` (`UVProvider`), unless a provider is given.
            provider: What runs it; see `from_docker_image`. With ``use_docker=False``, an object whose ``start()``
                returns the address and that knows all it needs.
            tag: The image's tag.
            start_arguments: Further arguments of ``start_container``; or of `UVProvider`, such as ``project_path``
                (another folder or git address) and ``env_vars``.

        Raises:
            ConfigurationError: The provider cannot be started so, or an argument is wrong.
        """
        from openenv_trl.providers.hub import repository_of, space_image, space_project

        repository = repository_of(repo_id)
        if repository is None:
            raise ConfigurationError(f"'{repo_id}' is no repository of the Hub: write it as owner/name.")
        if use_docker:
            return cls.from_docker_image(space_image(repository, tag), provider, **start_arguments)
        if provider is None:
            from openenv_trl.providers.uv import UVProvider

            project = start_arguments.pop("project_path", None) or space_project(repository)
            provider = UVProvider(project_path=project, **start_arguments)
        elif start_arguments:
            raise ConfigurationError(
                f"use_docker=False with provider={type(provider).__name__}: give the provider itself what "
                f"{', '.join(start_arguments)} says, when you make it."
            )
        return cls(provider=provider)

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
    def base_url(self) -> str | None:
        """The server's address, as it was given; None while the provider has not started it."""
        address = self._session.address
        return None if address is None else address.base_url

    @property
    def mode(self) -> str:
        """As it was given."""
        return self._mode_name

    @property
    def _mode(self) -> str:  # the name that environments' clients know it by
        return self._mode_name

    @property
    def is_open(self) -> bool:
        """Whether the session takes calls: it was connected, and its connection has not ended since."""
        return self._session.is_open

    @property
    def others_wait(self) -> bool:
        """Whether others wait for what this session does, such as the other side of a match.

        Its environment said so (``metadata["others_wait"]`` after `reset`), and the episode is not over. Who leaves it
        ends or resets the session, so that they are told; a `SessionPool` does not keep it.
        """
        return self._others_wait

    @property
    def wire(self) -> str | None:
        """Which wire the session is on, "native" or "openenv"; None where it is not open."""
        return self._session.link.wire if self._session.link is not None else None

    @property
    def session_id(self) -> str | None:
        """The session's name on the server, by which an agent can be let into it; None where the wire does not tell."""
        return self._session.link.session_id if self._session.link is not None else None

    def __repr__(self) -> str:
        state = "not connected" if self._session.link is None else self._session.link.state.value
        wire = f", {self.wire} wire" if self.wire else ""
        return f"<{type(self).__name__} of {self.base_url or 'a server to be started'}: {state}{wire}>"

    async def connect(self) -> Self:
        """Open the session and wait until the server holds an environment for it. Does nothing on an open session.

        The server accepts a connection before it knows whether it has a slot, and says nothing when it has. So this
        sends a JSON-RPC ``ping`` inside an ``mcp`` message: whatever is answered proves the session, except a refusal,
        and no server troubles its environment with it.

        Raises:
            ConnectionFailedError: No server answered at the address. Another try is allowed.
            SessionCapacityError: The server has no free slot, or had none within ``wait_for_slot_s``. Another try is
                allowed.
            EnvironmentFactoryError: The environment's constructor raised.
            DeadlineExceededError: The environment was not built in time.
            SessionLostError: This client was connected before, and lost its session.
            SessionStateError: It is closed, or its session is on another event loop.
            ServerStartError: The provider could not start the server.
        """
        await self._session.opened("connect")
        return self

    async def disconnect(self) -> None:
        """End the session, and keep the client: `connect` or `reset` then begins a new one, with a new environment."""
        self._others_wait = False
        await self._session.disconnect()

    async def new_session(self) -> Self:
        """Return a client like this one with a session of its own on the same server, connected; closed with this one.

        Raises:
            SessionCapacityError: The server has no free slot.
            OpenEnvError: As `connect`.
        """
        if self._session.address is None:
            await self._session.opened("new_session")
        child = copy.copy(self)
        child._begin(self._session.another())
        await child.connect()
        self._children.append(child)
        return child

    async def reset(self, **kwargs: Any) -> StepResult[ObsT]:
        """Begin an episode. The arguments (``seed``, ``episode_id``, the task's own) go to the environment's ``reset``.

        Raises:
            ConfigurationError: The environment cannot do what it was asked; its text says what to change.
            EnvironmentExecutionError: The environment raised.
            SessionLostError: The session is gone.
            DeadlineExceededError: No reply in time; the session is lost.
        """
        reply = await self._call("reset", "reset", kwargs)
        self._others_wait = not reply.data.get("done") and says_that_others_wait(reply.data.get("metadata"))
        return self._parse_result(reply.data)

    async def step(self, action: ActT, timeout_s: float | None = None) -> StepResult[ObsT]:
        """Take one step.

        Args:
            action: The action.
            timeout_s: Seconds for the reply; ``message_timeout_s`` if None.

        Raises:
            ActionValidationError: The action does not fit the environment's schema; ``errors`` names the fields.
            ConfigurationError: The environment cannot do what it was asked; its text says what to change.
            EnvironmentExecutionError: The environment raised.
            SessionLostError: The session is gone.
            DeadlineExceededError: No reply in time; the session is lost.
        """
        reply = await self._call("step", "step", self._step_payload(action), timeout_s)
        if self._others_wait and reply.data.get("done"):
            self._others_wait = False
        return self._parse_result(reply.data)

    async def state(self) -> StateT:
        """Return where the episode stands.

        Raises:
            ConfigurationError: The environment cannot do what it was asked; its text says what to change.
            EnvironmentExecutionError: The environment raised.
            SessionLostError: The session is gone.
            DeadlineExceededError: No reply in time; the session is lost.
        """
        reply = await self._call("state", "state")
        return self._parse_state(reply.data)

    async def list_tools(self) -> list[Tool]:
        """Return the tools that the environment offers; none where it, or an older server, offers none.

        Raises:
            EnvironmentExecutionError: The environment failed to list them.
            SessionLostError: The session is gone.
        """
        try:
            reply = await self._call("list_tools", "mcp", rpc_request(1, "tools/list"))
        except ProtocolError as error:
            if self._session.is_open:
                return []  # a server that knows no "mcp" message refused it, and goes on
            raise error
        result = parse_rpc_response(reply.data)
        if isinstance(result, RpcFailure):
            if NO_MCP_TEXT in result.message or result.code == RpcErrorCode.METHOD_NOT_FOUND:
                return []
            if is_configuration(result.data):
                raise ConfigurationError(result.message, phase="list_tools")
            raise EnvironmentExecutionError(f"The environment could not list its tools: {result.message}")
        return [tool_of_mcp(entry) for entry in cast("list[dict[str, Any]]", result.get("tools") or [])]

    async def close(self) -> None:
        """End the session; once this returns the server's slot is free again (or the server did not answer in time).

        A call that still waits in another task gets a `SessionLostError`. Ends also the sessions that `new_session`
        began, and the server where the client has a provider for it. May be called more than once.
        """
        children, self._children = self._children, []
        try:
            for child in children:
                await child.close()
        finally:
            await self._session.close()

    def sync(self) -> SyncEnvClient[ActT, ObsT, StateT]:
        """Return a blocking client around this one."""
        from openenv_trl.client.sync_client import SyncEnvClient

        return SyncEnvClient(self)

    def __await__(self) -> Generator[Any, Any, Self]:
        return self.connect().__await__()

    async def __aenter__(self) -> Self:
        return await self.connect()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __enter__(self) -> SyncEnvClient[ActT, ObsT, StateT]:
        self._blocking = self.sync()
        return self._blocking.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._blocking is not None:
            self._blocking.close()

    def _call(
        self, phase: str, kind: RequestType, data: dict[str, Any] | None = None, timeout_s: float | None = None
    ) -> Awaitable[Reply]:
        return self._session.call(phase, kind, data, timeout_s)

    async def _new_link(self, address: ServerAddress, wait_s: float) -> Link:
        settings = self._socket_settings
        if self._session.server_headers:
            settings = replace(settings, headers={**(settings.headers or {}), **self._session.server_headers})
        return await choose_link(address, LinkSettings(settings, self._message_timeout_s, wait_s, self._wire))
