"""The image that is to be run: found on the engine, or pulled."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from openenv_trl.errors import ProviderError, ServerStartError
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
        near = await _near(connection, spec.image)
        raise image_missing(spec, connection, "with pull='never' it is not pulled", near)
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
        raise ServerStartError(f"image={spec.image!r} is no name of an image: {error.message}") from None
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
        near = await _near(connection, spec.image)
        raise image_missing(spec, connection, f"it could not be pulled ({error.message.strip()})", near) from None


async def _near(connection: EngineConnection, name: str) -> str:
    """An image of the engine's whose name is much like one that it does not have; "" where there is none."""
    import aiodocker

    try:
        with connection.call():
            images: list[dict[str, Any]] = await connection.docker.images.list()
    except (aiodocker.DockerError, ProviderError):
        return ""  # a help only: why it is wanted is the news
    tags: list[list[str]] = [image.get("RepoTags") or [] for image in images]
    return nearest(name, [tag for each in tags for tag in each])


def nearest(name: str, tags: Sequence[str]) -> str:
    """Return the tag that is most like a name; "" where none is.

    Args:
        name: What was asked for, with a tag or without.
        tags: Those that there are, such as ``echo-env:latest``.
    """
    repository, _, tag = name.partition("@")[0].rpartition("/")[2].partition(":")
    ends = {each: each.rpartition("/")[2] for each in tags}
    asked = f"{repository}:{tag or 'latest'}"
    if found := difflib.get_close_matches(asked, list(ends.values()), n=1, cutoff=0.75):
        return next(each for each, end in ends.items() if end == found[0])
    # Another tag of the same image.
    return next((each for each, end in ends.items() if end.partition(":")[0] == repository), "")
