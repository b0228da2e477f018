"""The names of ``openenv.core.containers.runtime.providers``.

The container providers are this package's own: they have ``start_container``, ``wait_for_ready`` and
``stop_container`` beside their own calls. The two abstract classes are for providers of third parties.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from openenv_trl.compat._names import names_of
from openenv_trl.providers.container_calls import ContainerProvider, RuntimeProvider

if TYPE_CHECKING:
    from openenv_trl.providers.docker import LocalDockerProvider
    from openenv_trl.providers.kubernetes import KubernetesProvider
    from openenv_trl.providers.swarm import DockerSwarmProvider

__all__ = [
    "ContainerProvider",
    "DockerSwarmProvider",
    "KubernetesProvider",
    "LocalDockerProvider",
    "RuntimeProvider",
]

__getattr__ = names_of(__name__)
