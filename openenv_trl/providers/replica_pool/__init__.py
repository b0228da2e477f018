"""A pool of sessions whose servers are started when they are needed, replaced when they die, and stopped when idle."""

from __future__ import annotations

from openenv_trl.providers.replica_pool.settings import PoolSettings

__all__ = ["PoolSettings"]
