"""All kinds of providers by the ``type`` that a settings file gives them, each imported when it is named."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Mapping
from typing import Any, cast

from pydantic import ValidationError

from openenv_trl.errors import ConfigurationError
from openenv_trl.providers.base import Provider
from openenv_trl.providers.spec import ServerSpec
from openenv_trl.settings_errors import problems, with_guess

_HOMES = {
    "process": ("openenv_trl.providers.process", "ProcessSpec", "ProcessProvider"),
    "uv": ("openenv_trl.providers.uv", "UVSpec", "UVProvider"),
    "docker": ("openenv_trl.providers.docker", "DockerSpec", "LocalDockerProvider"),
    "swarm": ("openenv_trl.providers.swarm", "SwarmSpec", "DockerSwarmProvider"),
    "kubernetes": ("openenv_trl.providers.kubernetes", "KubernetesSpec", "KubernetesProvider"),
    "daytona": ("openenv_trl.providers.daytona", "DaytonaSpec", "DaytonaProvider"),
    "space": ("openenv_trl.providers.space", "SpaceSpec", "SpaceProvider"),
    "remote": ("openenv_trl.providers.remote", "RemoteSpec", "RemoteProvider"),
}

_EXAMPLES = {
    "process": "environment: environments/echo_env",
    "uv": "project: environments/echo_env",
    "space": "space: owner/name",
    "remote": "urls: [http://127.0.0.1:8000]",
}
_EXAMPLE = "image: echo-env:latest"

PROVIDER_TYPES = tuple(_HOMES)
"""The values of ``type``."""


def read_spec(settings: Mapping[str, Any] | ServerSpec) -> ServerSpec:
    """Read what a settings file says of a provider.

    Args:
        settings: ``type``, and the fields of that type's spec; or a spec already.

    Raises:
        ConfigurationError: The type is unknown, a field is, or a value cannot be used; all that is wrong is named.

    Example:
        >>> read_spec({"type": "docker", "image": "echo-env:latest", "memory": "512m"})
    """
    if isinstance(settings, ServerSpec):
        return settings
    # Also what a YAML file gives in place of a mapping.
    if not isinstance(settings, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        kind = settings if isinstance(settings, str) and settings in _HOMES else "docker"
        raise ConfigurationError(
            f"A provider is given by its type and what it is to run, and not by {settings!r:.60}. "
            f"Write {{type: {kind}, {_EXAMPLES.get(kind, _EXAMPLE)}}}, say."
        )
    kind = settings.get("type")
    if kind not in _HOMES:
        if kind is not None:
            what = f"cannot be used: there is no type {with_guess(str(kind), _HOMES)}"
        elif near := difflib.get_close_matches("type", map(str, settings), n=1):
            what = f"has no type: it has no field '{near[0]}' (is 'type' meant?)"
        else:
            what = "has no type"
        raise ConfigurationError(f"The provider {what}. Set type to one of: {', '.join(_HOMES)}.")
    module, spec, _ = _HOMES[kind]
    model = cast("type[ServerSpec]", getattr(importlib.import_module(module), spec))
    try:
        return model.model_validate(dict(settings))
    except ValidationError as error:
        raise ConfigurationError(f"The provider of type '{kind}' cannot be used: {problems(error, model)}.") from None


def make_provider(settings: Mapping[str, Any] | ServerSpec, **observers: Any) -> Provider:
    """Make the provider for a spec; nothing is started yet.

    Args:
        settings: As for `read_spec`.
        **observers: ``on_exit`` and ``on_log`` of the provider.

    Raises:
        ConfigurationError: As `read_spec`; or the package that the provider needs is not installed.
    """
    spec = read_spec(settings)
    module, _, provider = _HOMES[spec.type]
    return getattr(importlib.import_module(module), provider)(spec, **observers)
