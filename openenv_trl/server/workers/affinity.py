"""Which worker a request belongs to.

A session lives in one worker, and its id tells which: ``<uuid>-w1``. A request that names a session (``session_id`` in
the query or in the JSON body, MCP's header ``Mcp-Session-Id``, or the debug page's cookie) or a worker (``worker`` in
the query) belongs there;
any other belongs to whoever accepted it, or, where it begins a session, to the worker whose turn it is.
"""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import Mapping

from openenv_trl.server.workers.handover import send_socket
from openenv_trl.server.workers.memory import SharedMemory, Standing
from openenv_trl.server.workers.place import WorkerPlace

_NAMED = re.compile(r"[-~]w([0-9]{1,4})\Z")
_NUMBER = re.compile(r"[0-9]{1,4}\Z")

MCP_HEADER = "mcp-session-id"
PAGE_COOKIE = "openenv_web"
"""The cookie in which a visitor of the debug page's routes has a session's id."""

_IN_COOKIE = re.compile(rf"(?:^|;)\s*{PAGE_COOKIE}=([^;\s]+)")


class Affinity:
    """One worker's view of who owns what.

    Args:
        place: This worker's place.
        memory: What the workers share.
    """

    def __init__(self, place: WorkerPlace, memory: SharedMemory) -> None:
        self.place = place
        self.memory = memory

    def new_session_id(self) -> str:
        """Return an id for a session of this worker."""
        return f"{uuid.uuid4()}-w{self.place.index}"

    def worker_of(self, session_id: str) -> int | None:
        """Return the worker that gave this id; None if none of this server did."""
        found = _NAMED.search(session_id)
        return None if found is None else self._valid(int(found[1]))

    def named(self, query: Mapping[str, str], headers: Mapping[str, str]) -> int | None:
        """Return the worker that a request names, this one included; None if it names none.

        Args:
            query: The query's parameters.
            headers: The headers, with names in lower case.
        """
        session_id = query.get("session_id") or headers.get(MCP_HEADER)
        if session_id:
            return self.worker_of(session_id)
        number = query.get("worker", "")
        if _NUMBER.match(number):
            return self._valid(int(number))
        visited = cookie_of(headers)
        return None if visited is None else self.worker_of(visited)

    def owner(self, path: str, query: Mapping[str, str], headers: Mapping[str, str]) -> int | None:
        """Return the other worker that a request names; None if it is this one's to answer.

        Args:
            path: The path, without the query; no path has a worker of its own so far.
            query: The query's parameters.
            headers: The headers, with names in lower case.
        """
        return self.elsewhere(self.named(query, headers))

    def owner_of_socket(self, query: Mapping[str, str], headers: Mapping[str, str]) -> int | None:
        """Return the other worker that a new WebSocket goes to; None if it stays here.

        One that names no worker goes to each in turn: the kernel gives bursts of connections to few of them.
        """
        named = self.named(query, headers)
        return self.elsewhere(self.memory.take_turn() if named is None else named)

    def elsewhere(self, worker: int | None) -> int | None:
        """Return the worker if it is another one than this, and there."""
        if worker is None or worker == self.place.index or self.memory.standing(worker) is Standing.DOWN:
            return None
        return worker

    def workers(self) -> list[int]:
        """Return the workers that are there, this one included."""
        up = range(self.place.count)
        return [each for each in up if each == self.place.index or self.memory.standing(each) is not Standing.DOWN]

    def hand_over(self, transport: asyncio.Transport, head: bytes, worker: int) -> bool:
        """Give another worker a connection, with the request that was read from it.

        Returns:
            Whether it was taken: the transport is then closed here, and lives on there. If not, it is as it was.
        """
        connection = transport.get_extra_info("socket")
        if not send_socket(connection.fileno(), head, self.place.family, worker):
            return False
        transport.abort()  # closes this process's descriptor; the connection has another one
        return True

    def _valid(self, worker: int) -> int | None:
        return worker if worker < self.place.count else None


def cookie_of(headers: Mapping[str, str]) -> str | None:
    """Return the session's id in a visitor's cookie; None where there is none."""
    found = _IN_COOKIE.search(headers.get("cookie", ""))
    return None if found is None else found[1]
