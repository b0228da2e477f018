"""The image that is to be run: found on the engine, or pulled."""

from __future__ import annotations

from typing import Any

from openenv_trl.errors import ServerStartError
from openenv_trl.providers.docker.connection import EngineConnection
from openenv_trl.providers.docker.failures import image_missing
from openenv_trl.providers.docker.spec import DockerSpec
from openenv_trl.providers.logs import logger


async def image_labels(connection: EngineConnection, spec: DockerSpec) -> dict[str, str]:
    """Return the labels of the image, which is pulled where ``pull`` says so.

    Args:
        connection: The engine.
        spec: What is to be run.

    Raises:
        ServerStartError: There is no such image; the message says what to build or pull.
        ProviderError: The engine does not answer.
    """
    if spec.pull != "always":
        labels = await _labels(connection, spec)
        if labels is not None:
            return labels
    if spec.pull == "never":
        raise image_missing(spec, connection, "with pull='never' it is not pulled")
    await _pull(connection, spec)
    labels = await _labels(connection, spec)
    if labels is None:
        raise image_missing(spec, connection, "a pull has not brought it")
    return labels


async def _labels(connection: EngineConnection, spec: DockerSpec) -> dict[str, str] | None:
    import aiodocker

    try:
        with connection.call():
            image: dict[str, Any] = await connection.docker.images.inspect(spec.image)
    except aiodocker.DockerError as error:
        if error.status == 404:
            return None
        raise ServerStartError(f"image={spec.image!r} is no name of an image: {error.message}") from error
    config: dict[str, Any] = image.get("Config") or {}
    labels: dict[str, str] = config.get("Labels") or {}
    return labels


async def _pull(connection: EngineConnection, spec: DockerSpec) -> None:
    import aiodocker

    logger.info("pulling the image %s", spec.image)
    try:
        with connection.call(None):
            await connection.docker.images.pull(spec.image)
    except aiodocker.DockerError as error:
        raise image_missing(spec, connection, f"it could not be pulled ({error.message.strip()})") from error
