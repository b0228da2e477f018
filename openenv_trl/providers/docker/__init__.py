"""Environment servers in containers of a Docker engine, on this machine or another."""

from __future__ import annotations

from openenv_trl.providers.docker.provider import LocalDockerProvider
from openenv_trl.providers.docker.spec import DockerSpec

__all__ = ["DockerSpec", "LocalDockerProvider"]
