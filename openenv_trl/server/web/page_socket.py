"""``/ws/ui``: what the page talks to. One visitor for each socket, so that no two tabs share an episode.

Each request (``reset``, ``step``, ``state``, ``snippet``, ``close``) carries an ``id`` and gets one reply with the
same; ``stop`` gets none. Beside the replies the page is told of the environment once (``about``), of the server
whenever its numbers change (``server``), and of what happens to its session (``waiting``, ``ended``). In production
mode there is nothing but ``about`` and ``server``: no episode is played from here.
"""

from __future__ import annotations

import json
import logging
from typing import Any, cast

import anyio

from openenv_trl.errors import ConfigurationError, OpenEnvError
from openenv_trl.server.channel import Channel
from openenv_trl.server.dialogue import too_long
from openenv_trl.server.web.page import Page
from openenv_trl.server.web.snippet import snippet_of
from openenv_trl.server.web.visitor import Visitor
from openenv_trl.wire.codec import decode, encode
from openenv_trl.wire.faults import fault_of

logger = logging.getLogger("openenv_trl.server")

SUBPROTOCOL = "openenv.web"
"""What the page offers to speak; a socket without it watches, as the public package's page does."""

WAIT_S = 3600.0
"""How long a visitor waits for a slot, unless they stop it: no longer than any other client may."""

_MOST_UNANSWERED = 64  # messages; the page sends one at a time
_LOOK_AGAIN_S = 0.5  # at the server's numbers


class PageDialogue:
    """One page's socket."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._visitor = Visitor(page.host, wait_s=WAIT_S)
        self._channel: Channel | None = None
        self._scope: anyio.CancelScope | None = None
        self._gone = False
        self._takes_more = True
        self._unanswered = 0
        self._send_messages, self._messages = anyio.create_memory_object_stream[str | bytes](_MOST_UNANSWERED)

    def opened(self, channel: Channel) -> None:
        """See `Consumer`."""
        self._channel = channel

    def received(self, message: str | bytes) -> None:
        """See `Consumer`."""
        self._unanswered += 1
        try:
            if self._unanswered <= _MOST_UNANSWERED:
                self._send_messages.send_nowait(message)
            elif self._channel is not None:
                self._channel.close(1008, "too many requests at once")
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass  # the dialogue is over

    def writing_paused(self) -> None:
        """See `Consumer`."""
        self._takes_more = False

    def writing_resumed(self) -> None:
        """See `Consumer`."""
        self._takes_more = True

    def closed(self, code: int) -> None:
        """See `Consumer`."""
        self._gone = True
        if self._scope is not None:
            self._scope.cancel()

    async def run(self) -> None:
        """See `Consumer`."""
        self._visitor.on_wait = lambda: self._tell({"type": "waiting", **self._page.numbers()})
        self._visitor.on_end = lambda text: self._tell({"type": "ended", "message": text})
        try:
            async with anyio.create_task_group() as tasks:
                self._scope = tasks.cancel_scope
                if self._gone:
                    return
                self._tell(await self._page.about())
                tasks.start_soon(self._tell_of_server)
                async with self._messages:
                    async for message in self._messages:
                        request = self._request(message)
                        if request is not None and request["type"] != "stop":
                            tasks.start_soon(self._answer, request)
                            continue
                        self._unanswered -= 1
                        if request is not None:
                            self._visitor.stop()
        finally:
            self._send_messages.close()
            with anyio.CancelScope(shield=True):
                await self._visitor.leave()

    def _request(self, message: str | bytes) -> dict[str, Any] | None:
        try:
            found: Any = decode(message) if isinstance(message, str) else None
        except json.JSONDecodeError:
            found = None
        if isinstance(found, dict) and isinstance(cast("dict[str, Any]", found).get("type"), str):
            return cast("dict[str, Any]", found)
        self._tell(_refused(None, "A request is a JSON object with 'type' and 'id'."))
        return None

    async def _answer(self, request: dict[str, Any]) -> None:
        number: Any = request.get("id")
        try:
            reply = {**await self._carry_out(request), "id": number}
        except OpenEnvError as error:
            reply = self._failed(number, error)
        except Exception:  # boundary: what is not foreseen is a fault of the server, and is said so
            logger.exception("A request of the debug page ended by a fault of the server")
            reply = _refused(number, "The server failed; its log tells why.")
        self._unanswered -= 1
        self._tell(reply)

    async def _carry_out(self, request: dict[str, Any]) -> dict[str, Any]:
        kind, visitor = request["type"], self._visitor
        if self._page.is_production:
            raise ConfigurationError("This server is in production mode: no episode is played from this page.")
        if kind == "reset":
            return {"type": "observation", "call": "reset", **await visitor.reset(_fields(request, "arguments"))}
        if kind == "step":
            return {"type": "observation", "call": "step", **await visitor.step(_fields(request, "action"))}
        if kind == "state":
            return {"type": "state", "state": await visitor.read_state()}
        if kind == "snippet":
            address, needs_token = str(request.get("address")), self._page.needs_token()
            text = snippet_of(visitor.record, address, needs_token=needs_token, state=visitor.state)
            return {"type": "snippet", "text": text}
        if kind == "close":
            visitor.stop()
            await visitor.leave()
            return {"type": "closed"}
        raise ConfigurationError(f"There is no request of the type {kind[:40]!r}.")

    def _failed(self, number: Any, error: OpenEnvError) -> dict[str, Any]:
        fault = fault_of(error)
        stands = self._visitor.session is not None and not self._visitor.session.is_over
        errors: list[Any] = fault.details.get("errors") or []
        return {
            "type": "error",
            "id": number,
            "code": fault.code,
            "message": str(error) if not errors or fault.message != "Invalid message" else "The action does not fit.",
            "errors": errors,
            "session_stands": stands,
        }

    async def _tell_of_server(self) -> None:
        last: dict[str, Any] | None = None
        while True:
            numbers = self._page.numbers()
            if numbers != last and self._takes_more:
                self._tell({"type": "server", **numbers})
                last = numbers
            await anyio.sleep(_LOOK_AGAIN_S)

    def _tell(self, message: dict[str, Any]) -> None:
        if self._channel is None or self._gone:
            return
        frame, most = encode(message), self._page.max_message_bytes
        if len(frame) > most:
            text = too_long(len(frame), most, {}).message
            frame = encode({**_refused(message.get("id"), text), "session_stands": self._visitor.session is not None})
        self._channel.send(frame, text=True)


class Watcher:
    """A socket that watches what a visitor of the HTTP routes does, in the public package's messages.

    Args:
        visitor: Whom it watches; None for somebody who has no episode.
    """

    def __init__(self, visitor: Visitor | None) -> None:
        self._visitor = visitor
        self._channel: Channel | None = None
        self._gone = False
        self._takes_more = True
        self._changed = anyio.Event()

    def opened(self, channel: Channel) -> None:
        """See `Consumer`."""
        self._channel = channel

    def received(self, message: str | bytes) -> None:
        """See `Consumer`. What a watcher says is not heard."""

    def writing_paused(self) -> None:
        """See `Consumer`."""
        self._takes_more = False

    def writing_resumed(self) -> None:
        """See `Consumer`."""
        self._takes_more = True
        self._changed.set()

    def closed(self, code: int) -> None:
        """See `Consumer`."""
        self._gone = True
        self._changed.set()

    async def run(self) -> None:
        """See `Consumer`."""
        visitor, changed = self._visitor, self._set
        if visitor is not None:
            visitor.watchers.append(changed)
        try:
            while not self._gone and self._channel is not None:
                self._changed = anyio.Event()
                if self._takes_more:
                    self._channel.send(encode({"type": "state_update", "episode_state": _episode(visitor)}), text=True)
                await self._changed.wait()
        finally:
            if visitor is not None:
                visitor.watchers.remove(changed)

    def _set(self) -> None:
        self._changed.set()


def _episode(visitor: Visitor | None) -> dict[str, Any]:
    if visitor is None:
        nothing: dict[str, Any] = {"episode_id": None, "step_count": 0, "current_observation": None}
        return {**nothing, "action_logs": [], "is_reset": True}
    state, record = visitor.state or {}, visitor.record
    return {
        "episode_id": state.get("episode_id"),
        "step_count": state.get("step_count", record.step_count),
        "current_observation": record.observation,
        "action_logs": record.logged(),
        "is_reset": record.step_count == 0,
    }


def _fields(request: dict[str, Any], name: str) -> dict[str, Any]:
    found: Any = request.get(name, {})
    if not isinstance(found, dict):
        raise ConfigurationError(f"'{name}' must be a JSON object.")
    return cast("dict[str, Any]", found)


def _refused(number: Any, text: str) -> dict[str, Any]:
    return {"type": "error", "id": number, "code": "REFUSED", "message": text, "errors": [], "session_stands": False}
