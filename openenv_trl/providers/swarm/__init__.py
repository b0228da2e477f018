"""Environment servers as services of a Docker Swarm."""

from __future__ import annotations

from openenv_trl.providers.swarm.provider import DockerSwarmProvider
from openenv_trl.providers.swarm.spec import SwarmSpec

__all__ = ["DockerSwarmProvider", "SwarmSpec"]
