"""How environment servers come to run, and the pools over them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from openenv_trl.lazy_names import lazy_names
from openenv_trl.providers.base import Endpoint, Provider, Replica, ReplicaExit
from openenv_trl.providers.pool import Lease, SessionPool
from openenv_trl.providers.pool_decisions import PoolMetrics
from openenv_trl.providers.process import ProcessProvider, ProcessSpec
from openenv_trl.providers.spec import ContainerSpec, ServerSpec
from openenv_trl.providers.specs import PROVIDER_TYPES, make_provider, read_spec

if TYPE_CHECKING:
    from openenv_trl.providers.container_calls import ContainerProvider, RuntimeProvider
    from openenv_trl.providers.daytona import DaytonaProvider, DaytonaSpec
    from openenv_trl.providers.docker import DockerSpec, LocalDockerProvider
    from openenv_trl.providers.kubernetes import KubernetesProvider, KubernetesSpec
    from openenv_trl.providers.plugged import PluggedProvider
    from openenv_trl.providers.remote import RemoteProvider, RemoteSpec
    from openenv_trl.providers.replica_pool import PoolSettings, ReplicaPool
    from openenv_trl.providers.space import SpaceProvider, SpaceSpec
    from openenv_trl.providers.swarm import DockerSwarmProvider, SwarmSpec
    from openenv_trl.providers.uv import UVProvider, UVSpec

# What is used of them is imported: each has an engine's client or more below it.
__getattr__ = lazy_names(
    __name__,
    {
        "openenv_trl.providers.container_calls": ("ContainerProvider", "RuntimeProvider"),
        "openenv_trl.providers.daytona": ("DaytonaProvider", "DaytonaSpec"),
        "openenv_trl.providers.docker": ("DockerSpec", "LocalDockerProvider"),
        "openenv_trl.providers.kubernetes": ("KubernetesProvider", "KubernetesSpec"),
        "openenv_trl.providers.plugged": ("PluggedProvider",),
        "openenv_trl.providers.remote": ("RemoteProvider", "RemoteSpec"),
        "openenv_trl.providers.replica_pool": ("PoolSettings", "ReplicaPool"),
        "openenv_trl.providers.space": ("SpaceProvider", "SpaceSpec"),
        "openenv_trl.providers.swarm": ("DockerSwarmProvider", "SwarmSpec"),
        "openenv_trl.providers.uv": ("UVProvider", "UVSpec"),
    },
)

__all__ = [
    "PROVIDER_TYPES",
    "ContainerProvider",
    "ContainerSpec",
    "DaytonaProvider",
    "DaytonaSpec",
    "DockerSpec",
    "DockerSwarmProvider",
    "Endpoint",
    "KubernetesProvider",
    "KubernetesSpec",
    "Lease",
    "LocalDockerProvider",
    "PluggedProvider",
    "PoolMetrics",
    "PoolSettings",
    "ProcessProvider",
    "ProcessSpec",
    "Provider",
    "RemoteProvider",
    "RemoteSpec",
    "Replica",
    "ReplicaExit",
    "ReplicaPool",
    "RuntimeProvider",
    "ServerSpec",
    "SessionPool",
    "SpaceProvider",
    "SpaceSpec",
    "SwarmSpec",
    "UVProvider",
    "UVSpec",
    "make_provider",
    "read_spec",
]
