"""How environment servers come to run, and the pool of sessions over them."""

from __future__ import annotations

from openenv_trl.providers.base import Provider, Replica
from openenv_trl.providers.pool import Lease, SessionPool
from openenv_trl.providers.pool_decisions import PoolMetrics
from openenv_trl.providers.process import ProcessProvider, ReplicaExit

__all__ = ["Lease", "PoolMetrics", "ProcessProvider", "Provider", "Replica", "ReplicaExit", "SessionPool"]
