"""A pool of sessions whose servers are started when they are needed, replaced when they die, and stopped when idle."""

from __future__ import annotations

from openenv_trl.providers.replica_pool.members import PoolMember
from openenv_trl.providers.replica_pool.metrics import ReplicaPoolMetrics
from openenv_trl.providers.replica_pool.pool import ReplicaPool
from openenv_trl.providers.replica_pool.pools import ReplicaPools
from openenv_trl.providers.replica_pool.settings import PoolSettings
from openenv_trl.providers.replica_pool.start_limit import StartLimit

__all__ = ["PoolMember", "PoolSettings", "ReplicaPool", "ReplicaPoolMetrics", "ReplicaPools", "StartLimit"]
