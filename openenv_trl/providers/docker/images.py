"""The image that is to be run: found on the engine, or pulled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from openenv_trl.errors import ServerStartError
from openenv_trl.providers.docker.connection import EngineConnection
from openenv_trl.providers.docker.failures import image_missing
from openenv_trl.providers.docker.spec import DockerSpec
from openenv_trl.providers.logs import logger


@dataclass(frozen=True)
class ImageFacts:
    """What an image says of itself."""

    labels: dict[str, str]
    volumes: tuple[str, ...]
    """The folders for which each of its containers has a volume of its own."""


async def image_facts(connection: EngineConnection, spec: DockerSpec) -> ImageFacts:
    """Return what the image says of itself; it is pulled where ``pull`` says so.

    Args:
        connection: The engine.
        spec: What is to be run.

    Raises:
        ServerStartError: There is no such image; the message says what to build or pull.
        ProviderError: The engine does not answer.
    """
    if spec.pull != "always":
        found = await _found(connection, spec)
        if found is not None:
            return found
    if spec.pull == "never":
        raise image_missing(spec, connection, "with pull='never' it is not pulled")
    await _pull(connection, spec)
    found = await _found(connection, spec)
    if found is None:
        raise image_missing(spec, connection, "a pull has not brought it")
    return found


async def _found(connection: EngineConnection, spec: DockerSpec) -> ImageFacts | None:
    import aiodocker

    try:
        with connection.call():
            image: dict[str, Any] = await connection.docker.images.inspect(spec.image)
    except aiodocker.DockerError as error:
        if error.status == 404:
            return None
        raise ServerStartError(f"image={spec.image!r} is no name of an image: {error.message}") from error
    config: dict[str, Any] = image.get("Config") or {}
    volumes: dict[str, Any] = config.get("Volumes") or {}
    return ImageFacts(config.get("Labels") or {}, tuple(volumes))


async def _pull(connection: EngineConnection, spec: DockerSpec) -> None:
    import aiodocker

    logger.info("pulling the image %s", spec.image)
    try:
        with connection.call(None):
            await connection.docker.images.pull(spec.image)
    except aiodocker.DockerError as error:
        raise image_missing(spec, connection, f"it could not be pulled ({error.message.strip()})") from error
