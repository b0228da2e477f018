"""The server of an environment that is installed here, started for a client that was asked for by its name."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from openenv_trl.client.discovery import InstalledEnvironment

if TYPE_CHECKING:
    from openenv_trl.providers.base import Provider

logger = logging.getLogger("openenv_trl.client")


class InstalledServer:
    """Runs an environment's image where this machine's Docker engine has it, else the installed package as a process.

    Which it is, is known once it was started: `provider` runs it then, and the log says so.

    Args:
        environment: The environment.
        env_vars: Environment variables of its server.
        ready_timeout_s: Seconds for it to be ready.
    """

    def __init__(
        self, environment: InstalledEnvironment, env_vars: Mapping[str, str], *, ready_timeout_s: float
    ) -> None:
        self._environment = environment
        self._env_vars = dict(env_vars)
        self._ready_timeout_s = ready_timeout_s
        self.provider: Provider | None = None

    async def start(self) -> str:
        """Start the server, and return its address."""
        self.provider = await self._choose()
        return (await self.provider.start()).base_url

    async def stop(self) -> None:
        """Stop it."""
        if self.provider is not None:
            await self.provider.stop()

    async def _choose(self) -> Provider:
        image = self._environment.default_image
        if await _engine_has(image):
            from openenv_trl.providers.docker import LocalDockerProvider

            logger.info("%s is served by a container of %s", self._environment.name, image)
            return LocalDockerProvider(image=image, env_vars=self._env_vars, ready_timeout_s=self._ready_timeout_s)
        from openenv_trl.providers.process import ProcessProvider

        folder = self._environment.folder()
        logger.info("%s is served by a process, from %s: Docker has no image %s", self._environment.name, folder, image)
        return ProcessProvider(folder, env_vars=self._env_vars, ready_timeout_s=self._ready_timeout_s)


async def _engine_has(image: str) -> bool:
    """Whether a Docker engine answers here and has the image; also False where its client is not installed."""
    try:
        import aiodocker
    except ImportError:
        return False
    try:
        async with aiodocker.Docker() as engine:
            await engine.images.inspect(image)
    except (aiodocker.DockerError, OSError, ValueError):
        return False
    return True
