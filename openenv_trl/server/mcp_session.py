"""One agent: its session of the Model Context Protocol, and the environment behind it.

Promises: an agent's own environment is closed once, when the agent is gone; a trainer's environment, to which an agent
was attached, is never closed by the agent. While a request of an agent runs (a stream of events that it keeps open
included), its own session counts as held by a connection.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import uuid
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from openenv_trl.errors import EnvironmentFactoryError
from openenv_trl.server.access import Role
from openenv_trl.server.access_middleware import Message, Receive, Send
from openenv_trl.server.host import SessionHost
from openenv_trl.server.hosted_session import HostedSession
from openenv_trl.server.mcp_opening import Opening
from openenv_trl.server.mcp_results import instructions

if TYPE_CHECKING:
    from openenv_trl.server.mcp_sdk import AgentConnection

logger = logging.getLogger("openenv_trl.server")


class AgentSession:
    """An agent's session. Made by `open`.

    Attributes:
        session_id: The protocol's session id; not that of the environment's session, which would open more doors.
        role: On whose behalf it was opened.
    """

    def __init__(
        self,
        host: SessionHost,
        hosted: HostedSession,
        connection: AgentConnection,
        session_id: str,
        role: Role,
        *,
        is_own: bool,
        as_json: bool,
    ) -> None:
        self.session_id = session_id
        self.role = role
        self._host = host
        self._hosted = hosted
        self._connection = connection
        self._is_own = is_own
        self._as_json = as_json  # for a client that takes no stream of events, whatever else it says that it takes
        self._requests = 0
        self._is_held = is_own  # as it was opened
        self._scope = anyio.CancelScope()
        self._connected = anyio.Event()
        self._is_ending = False
        self._ended = anyio.Event()

    @classmethod
    async def open(
        cls, host: SessionHost, opening: Opening, role: Role, *, as_json: bool, progress_interval_s: float
    ) -> AgentSession:
        """Open a session with an episode begun, or attach to one.

        Raises:
            ImportError: The package ``mcp`` is not installed.
            SessionCapacityError: No slot was free in time.
            SessionNotFoundError: There is no such session to be attached to.
            EnvironmentFactoryError: The environment's constructor raised.
            EnvironmentExecutionError: Its reset raised.
        """
        # In a thread: the first time it takes most of a second, which other sessions must not wait for.
        await anyio.to_thread.run_sync(importlib.import_module, "openenv_trl.server.mcp_tools")
        from openenv_trl.server.mcp_sdk import AgentConnection
        from openenv_trl.server.mcp_tools import AgentTools

        is_own = opening.session_id is None
        if opening.session_id is None:
            hosted = await host.open(wait_s=opening.wait_s, transport="mcp")
        else:
            hosted = host.sessions.find(opening.session_id)
        opened = False
        try:
            first = await hosted.reset(dict(opening.reset)) if is_own else None
            name, version, description = await _identity(host)
            opened = True
        finally:
            if is_own and not opened:
                with anyio.CancelScope(shield=True):
                    await hosted.close()
        session_id = uuid.uuid4().hex
        connection = AgentConnection(
            session_id,
            AgentTools(hosted, progress_interval_s),
            name=name,
            version=version,
            instructions=instructions(description, first),
            as_json=as_json,
        )
        return cls(host, hosted, connection, session_id, role, is_own=is_own, as_json=as_json)

    async def run(self) -> None:
        """Serve the session until it ends, whoever ends it; then close what is its own."""
        cancel = self._scope.cancel
        self._hosted.watch_end(cancel)
        try:
            if not self._hosted.is_over:
                with self._scope:
                    await self._connection.run(self._connected)
        finally:
            self._is_ending = True  # the library takes no message any more, while the environment may still be closing
            self._hosted.watch_end_no_more(cancel)
            self._connected.set()
            with anyio.CancelScope(shield=True):
                if self._is_own:
                    await self._hosted.close()
            self._ended.set()

    async def handle(self, scope: Message, receive: Receive, send: Send) -> int | None:
        """Answer one HTTP request, and return the answer's status; None where nothing was answered."""
        await self._connected.wait()
        if self._is_ending or self._scope.cancel_called or self._hosted.is_over:
            return None
        if self._as_json:
            others = [header for header in scope["headers"] if header[0].lower() != b"accept"]
            scope = {**scope, "headers": [*others, (b"accept", b"application/json")]}
        status: int | None = None
        is_complete = False

        async def watched(message: Message) -> None:
            nonlocal status, is_complete
            if is_complete:
                return  # the library has more to say where the session ends under a message that it took already
            if message["type"] == "http.response.start":
                status = message["status"]
            is_complete = message["type"] == "http.response.body" and not message.get("more_body", False)
            await send(message)

        self._requests += 1
        self._tell_held()
        try:
            with contextlib.suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):  # the session has ended
                await self._connection.handle(scope, receive, watched)
        finally:
            self._requests -= 1
            self._tell_held()
        return status

    async def end(self) -> None:
        """End the session, and return once its slot is free. A call that runs ends with it."""
        if self._is_own:
            self._hosted.cancel_call()
        self._scope.cancel()
        await self._ended.wait()

    def _tell_held(self) -> None:
        """Tell the host whether a connection holds the session. A trainer's is held by the trainer's own."""
        held = self._requests > 0
        if not self._is_own or held is self._is_held or self._hosted.is_over:
            return
        self._is_held = held
        if held:
            self._host.hold(self._hosted.session_id)
        else:
            self._host.release(self._hosted.session_id)


async def _identity(host: SessionHost) -> tuple[str, str, str]:
    try:
        found = await host.metadata()
    except EnvironmentFactoryError:
        return "environment", "", ""
    return found.name, found.version or "", found.description
