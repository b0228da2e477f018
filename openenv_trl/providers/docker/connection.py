"""The connection to a Docker engine, and its errors in words.

The engine's API is spoken through aiodocker: one event loop reads the engine's events and the output of many containers
while others start, which the docker command would need a process for each, and Docker's own SDK a thread.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

import anyio
import anyio.to_thread

from openenv_trl.errors import ConfigurationError, ProviderError
from openenv_trl.providers.docker.address import START_IT, EngineAddress, find_engine

CALL_TIMEOUT_S = 60.0
"""Seconds that one call of the engine may take, the pull of an image and the grace of a stop not counted."""
_REACH_TIMEOUT_S = 15.0
UNREACHABLE = 900
"""The status that aiodocker gives where no engine has answered at all."""


class EngineConnection:
    """One engine, reached. Used on the event loop that it was opened on.

    Attributes:
        docker: The client, an ``aiodocker.Docker``.
        address: Where the engine is.
        version: What it says of itself (``GET /version``).
    """

    def __init__(self, docker: Any, connector: Any, address: EngineAddress) -> None:
        self.docker = docker
        self.address = address
        self.version: dict[str, Any] = {}
        self._connector = connector

    @property
    def is_desktop(self) -> bool:
        """Whether the engine runs in a virtual machine of Docker Desktop."""
        return "Docker Desktop" in str(self.version.get("Platform"))

    async def close(self) -> None:
        """Let go of it."""
        await self.docker.close()
        if self._connector is not None:
            await self._connector.close()

    @contextmanager
    def call(self, timeout_s: float | None = CALL_TIMEOUT_S) -> Generator[None]:
        """Around calls of the engine: says in words that it does not answer. What it refuses is raised as it comes.

        Args:
            timeout_s: Seconds for all calls in the block; None for as long as they take.

        Raises:
            ProviderError: The engine cannot be reached, or does not answer in time.
        """
        import aiodocker
        import aiohttp

        try:
            with anyio.fail_after(timeout_s):
                yield
        except TimeoutError:
            raise ProviderError(
                f"The Docker engine at {self.address.url} has not answered within {timeout_s} s. Look at its log "
                "(`journalctl -u docker`), and start it again if need be."
            ) from None
        except aiodocker.DockerError as error:
            if error.status != UNREACHABLE:
                raise
            raise _unreachable(self.address, error.__context__ or error) from None
        except (aiohttp.ClientError, OSError) as error:
            raise _unreachable(self.address, error) from None


async def open_engine(docker_host: str | None = None, environment: Mapping[str, str] | None = None) -> EngineConnection:
    """Reach the engine.

    Args:
        docker_host: Its address; found as the docker command does if None.
        environment: Environment variables that say where it is, and how to speak to it; this process's if None.

    Raises:
        ConfigurationError: aiodocker is not installed, or an address cannot be used.
        ProviderError: No engine answers; the message says what to do.
    """
    if importlib.util.find_spec("aiodocker") is None:
        raise ConfigurationError("Docker needs the package aiodocker: pip install 'openenv-trl[docker]'.")
    address = await anyio.to_thread.run_sync(find_engine, docker_host, environment)
    # In a thread: the import takes 0.2 s, and the loop has other providers' work to do.
    aiodocker: Any = await anyio.to_thread.run_sync(importlib.import_module, "aiodocker")
    connector = _connector(address)
    try:
        url = "unix://localhost" if address.url.startswith("unix://") else address.url
        if address.tls is not None:
            url = url.replace("tcp://", "https://", 1)
        docker = aiodocker.Docker(url=url, connector=connector)
    except (ValueError, ImportError) as error:
        raise ConfigurationError(f"The Docker engine at {address.url} cannot be reached: {error}") from None
    connection = EngineConnection(docker, connector, address)
    try:
        with connection.call(_REACH_TIMEOUT_S):
            connection.version = await docker.version()
    except BaseException as error:
        with anyio.CancelScope(shield=True):
            await connection.close()
        if isinstance(error, aiodocker.DockerError):
            raise ProviderError(f"What answers at {address.url} is no Docker engine: {error}", phase="start") from None
        raise
    return connection


def _connector(address: EngineAddress) -> Any:
    """A connector without aiohttp's limit of 100 connections: each container's output keeps one open."""
    import aiohttp

    if address.url.startswith("unix://"):
        return aiohttp.UnixConnector(address.url.removeprefix("unix://"), limit=0)
    if address.url.startswith(("tcp://", "http://", "https://")):
        return aiohttp.TCPConnector(limit=0) if address.tls is None else aiohttp.TCPConnector(ssl=address.tls, limit=0)
    return None  # aiodocker's own, for ssh and Windows' pipes


def _unreachable(address: EngineAddress, error: BaseException) -> ProviderError:
    cause = getattr(error, "os_error", None) or error
    if isinstance(cause, PermissionError):
        return ProviderError(
            f"No permission to use the Docker engine at {address.url}. Add yourself to the group docker "
            "(`sudo usermod -aG docker $USER`, then log in again), or run a rootless engine and set DOCKER_HOST to its "
            "socket.",
            phase="start",
        )
    return ProviderError(f"No Docker engine answers at {address.url} ({cause}). {START_IT}", phase="start")
