"""The names of ``openenv.core.containers.runtime``: what starts environment servers, each imported when it is named."""

from __future__ import annotations

from typing import TYPE_CHECKING

from openenv_trl.compat._names import names_of

if TYPE_CHECKING:
    from openenv_trl.compat.containers.runtime.daytona_provider import DaytonaProvider
    from openenv_trl.compat.containers.runtime.providers import (
        ContainerProvider,
        DockerSwarmProvider,
        KubernetesProvider,
        LocalDockerProvider,
        RuntimeProvider,
    )
    from openenv_trl.compat.containers.runtime.uv_provider import UVProvider

__all__ = [
    "ContainerProvider",
    "DaytonaProvider",
    "DockerSwarmProvider",
    "KubernetesProvider",
    "LocalDockerProvider",
    "RuntimeProvider",
    "UVProvider",
]

__getattr__ = names_of(__name__)
