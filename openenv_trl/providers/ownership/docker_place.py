"""Which Docker engine a provider's is, for whoever cleans up there later and elsewhere, with other settings around."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from openenv_trl.errors import OpenEnvError
from openenv_trl.providers.docker.address import find_engine


def docker_place(kind: str, docker_host: str | None, environment: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the place of an engine as it is found now, whatever DOCKER_HOST and its like say later.

    Args:
        kind: ``docker`` or ``swarm``.
        docker_host: The engine's address; None to look for it.
        environment: Environment variables; this process's if None.
    """
    environment = os.environ if environment is None else environment
    place: dict[str, Any] = {"type": kind, "docker_host": docker_host}
    with suppress(OpenEnvError):  # whoever connects says it better
        address = find_engine(docker_host, environment)
        if docker_host or environment.get("DOCKER_HOST"):
            settings = {"DOCKER_CERT_PATH": environment.get("DOCKER_CERT_PATH") or str(Path.home() / ".docker")}
            if address.tls is not None:
                settings["DOCKER_TLS_VERIFY"] = "1"
            return {**place, "docker_host": address.url, "settings": settings}
        if address.tls is None:
            return {**place, "docker_host": address.url, "settings": {}}
        # Of a context, which has certificates of its own.
        folder = Path(environment.get("DOCKER_CONFIG") or Path.home() / ".docker")
        return {**place, "settings": {"DOCKER_CONFIG": str(folder), "DOCKER_CONTEXT": _context(folder, environment)}}
    return place


def _context(folder: Path, environment: Mapping[str, str]) -> str:
    return environment.get("DOCKER_CONTEXT") or str(json.loads((folder / "config.json").read_bytes())["currentContext"])
