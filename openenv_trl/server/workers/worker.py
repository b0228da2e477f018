"""A worker process: a server that also takes connections from its siblings and orders from its parent."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from typing import Any

import uvicorn

from openenv_trl.server.draining import Drain, DrainingServer
from openenv_trl.server.host import SessionHost
from openenv_trl.server.workers.control import ParentLink, die_with_parent
from openenv_trl.server.workers.handover import HandedOver, listen, take_sockets
from openenv_trl.server.workers.joining import affinity_of
from openenv_trl.server.workers.memory import Standing
from openenv_trl.server.workers.place import WorkerPlace
from openenv_trl.server.workers.protocol import WorkerHttpProtocol, serve_handed_over


def begin_worker(place: WorkerPlace) -> None:
    """Tie this process to its parent: it ends when the parent does.

    Raises:
        SystemExit: The parent is gone already.
    """
    die_with_parent()
    if os.getppid() != place.parent:
        raise SystemExit(1)


def worker_server(
    config: uvicorn.Config, hosts: Sequence[SessionHost], drain: Drain, place: WorkerPlace, *, longest_stop_s: float
) -> DrainingServer:
    """Return the server of a worker.

    Args:
        config: uvicorn's; its HTTP protocol is replaced by the worker's.
        hosts: Whose sessions are drained.
        drain: When that begins and ends.
        place: The worker's place.
        longest_stop_s: How long an orderly stop may take.
    """
    affinity = affinity_of(place)
    protocol: Any = functools.partial(WorkerHttpProtocol, affinity)
    config.http = protocol

    async def take_from_siblings(server: uvicorn.Server) -> None:
        async def take(handed: HandedOver) -> None:
            await serve_handed_over(handed, config, server.server_state, server.lifespan.state)

        with listen(place.family, place.index) as listening:
            stand(Standing.UP)
            link.tell_ready(longest_stop_s)
            try:
                await take_sockets(listening, take)
            finally:
                stand(Standing.DOWN)

    async def obey_parent(_: uvicorn.Server) -> None:
        await link.listen(server.begin_drain, server.end_drain)

    stand = functools.partial(affinity.memory.set_standing, place.index)
    link = ParentLink(place.control_fd)
    server = DrainingServer(
        config,
        hosts,
        drain,
        obeys_parent=True,
        beside=(take_from_siblings, obey_parent),
        on_drain=functools.partial(stand, Standing.LEAVING),
    )
    return server
