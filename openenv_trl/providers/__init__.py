"""How environment servers come to run, and the pool of sessions over them."""

from __future__ import annotations

from openenv_trl.providers.base import Endpoint, Provider, Replica, ReplicaExit
from openenv_trl.providers.pool import Lease, SessionPool
from openenv_trl.providers.pool_decisions import PoolMetrics
from openenv_trl.providers.process import ProcessProvider, ProcessSpec
from openenv_trl.providers.spec import ContainerSpec, ServerSpec

__all__ = [
    "ContainerSpec",
    "Endpoint",
    "Lease",
    "PoolMetrics",
    "ProcessProvider",
    "ProcessSpec",
    "Provider",
    "Replica",
    "ReplicaExit",
    "ServerSpec",
    "SessionPool",
]
