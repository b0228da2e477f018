"""Takes away what a provider has made on its engine, and sees to it that it is gone."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable
from typing import Any

import anyio

from openenv_trl.errors import ProviderError
from openenv_trl.providers.docker.connection import CALL_TIMEOUT_S, EngineConnection
from openenv_trl.providers.logs import logger

_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 1.0
_TRIED_FOR_S = 2.0
_REMOVAL_TAKES_S = 60.0
_UNDER_WAY = "already in progress"
"""In the engine's words: it removes the thing, as it does itself when a container ends."""
# The engine's "in a moment": it removes the thing already, or something else still holds it.
_BUSY = (403, 409, 500)


async def remove_container(connection: EngineConnection, container_id: str, grace_s: float | None) -> None:
    """End a container and remove it with its anonymous volumes. It may be gone already.

    Args:
        connection: The engine.
        container_id: Its id or name.
        grace_s: Seconds for it to end by itself; None to end it at once.

    Raises:
        ProviderError: The engine does not answer, or cannot remove it.
    """
    import aiodocker

    container = connection.docker.containers.container(container_id)
    if grace_s is not None:
        # Refused, it has ended; or the engine is to do its worst.
        with contextlib.suppress(aiodocker.DockerError), connection.call(grace_s + CALL_TIMEOUT_S):
            await container.stop(t=math.ceil(grace_s))
    last = await _delete(connection, container, force=True, v=True)
    if last:
        raise ProviderError(
            f"The container {container_id[:12]} could not be removed: {last}. "
            f"Remove it: `docker rm --force --volumes {container_id[:12]}`."
        )


class Leftovers:
    """Networks and volumes that could not be removed when their time had come, as when the engine was away."""

    def __init__(self) -> None:
        self._networks: set[str] = set()
        self._volumes: set[str] = set()

    def add(self, *, networks: Iterable[str] = (), volumes: Iterable[str] = ()) -> None:
        """Take note of what is to be removed."""
        self._networks.update(networks)
        self._volumes.update(volumes)

    async def remove(self, connection: EngineConnection) -> None:
        """Remove all of it; what still cannot be removed is named in the log, and kept for the next time."""
        from aiodocker.networks import DockerNetwork
        from aiodocker.volumes import DockerVolume

        docker = connection.docker
        for kind, names, thing in (
            ("network", self._networks, DockerNetwork),
            ("volume", self._volumes, DockerVolume),
        ):
            for name in list(names):
                try:
                    why = await _delete(connection, thing(docker, name))
                except ProviderError as error:
                    why = str(error)
                if why:
                    logger.warning("The %s %s is left (%s): `docker %s rm %s`.", kind, name[:12], why, kind, name[:12])
                else:
                    names.discard(name)


async def _delete(connection: EngineConnection, thing: Any, **options: Any) -> str:
    """Deletes a thing; returns "" when it is gone, otherwise why it is not."""
    import aiodocker

    began, pause_s = anyio.current_time(), _PAUSE_S
    while True:
        try:
            with connection.call():
                await thing.delete(**options)
            return ""
        except aiodocker.DockerError as error:
            if error.status == 404:
                return ""
            last = error.message
            tried_for_s = _REMOVAL_TAKES_S if _UNDER_WAY in last else _TRIED_FOR_S
            if error.status not in _BUSY or anyio.current_time() - began > tried_for_s:
                return last
        await anyio.sleep(pause_s)
        pause_s = min(pause_s * 1.5, _LONGEST_PAUSE_S)
