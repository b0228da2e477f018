"""What an experiment's ``provider:`` leaves out because its ``environment:`` says it: the image, or the folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import yaml

from openenv_trl.errors import ConfigurationError
from openenv_trl.rollout.servers import ProvidedServers, provided_servers

_RUN_IMAGES = frozenset({"docker", "swarm", "kubernetes", "daytona"})
_FOLDER_FIELDS = {"process": "environment", "uv": "project"}


def servers_of(provider: Any, pool: Any, environment: str | None, *, sessions_per_server: int) -> ProvidedServers:
    """What an experiment's ``provider:`` and ``pool:`` start.

    Args:
        provider: As its file has it.
        pool: As its file has it; None or empty for the defaults.
        environment: The folder of the environment's package, if the experiment names one.
        sessions_per_server: Where the pool does not say.

    Raises:
        ConfigurationError: One of them cannot be used.
    """
    if isinstance(provider, Mapping):
        provider = provider_settings(cast("Mapping[str, Any]", provider), environment)
    return provided_servers(provider, pool, sessions_per_server=sessions_per_server)


def provider_settings(provider: Mapping[str, Any], environment: str | None) -> dict[str, Any]:
    """The provider's settings, with what the environment says where they are silent.

    Args:
        provider: ``type`` and the fields of that type.
        environment: The folder of the environment's package, if the experiment names one.

    Raises:
        ConfigurationError: The folder has no usable ``openenv.yaml`` to take an image's name from.
    """
    settings = dict(provider)
    kind = settings.get("type")
    if environment is None:
        return settings
    if kind in _FOLDER_FIELDS:
        settings.setdefault(_FOLDER_FIELDS[kind], environment)
    elif kind in _RUN_IMAGES and "image" not in settings:
        settings["image"] = _image_of(environment)
    return settings


def _image_of(environment: str) -> str:
    manifest = Path(environment, "openenv.yaml")
    name = ""
    if manifest.is_file():
        read: Any = yaml.safe_load(manifest.read_text(encoding="utf-8"))
        if isinstance(read, dict):
            name = str(cast("dict[str, Any]", read).get("name") or "")
    if not name:
        raise ConfigurationError(
            f"provider: give the image to run (image: ...); environment={environment!r} has no openenv.yaml with a "
            "name to take it from."
        )
    return f"{name.replace('_', '-')}:latest"
