"""Credentials for the registry of an image, which Swarm passes on to the nodes that pull it."""

from __future__ import annotations

import base64
import binascii
import json
import os
from pathlib import Path
from typing import Any

from openenv_trl.providers.swarm.spec import SwarmSpec

_HUB = "https://index.docker.io/v1/"


def registry_of(image: str) -> str:
    """The registry that an image's name names, as ``docker login`` stores it."""
    first, slash, _ = image.partition("/")
    named = slash and ("." in first or ":" in first or first == "localhost")
    return first if named and first not in ("docker.io", "index.docker.io") else _HUB


def registry_auth(spec: SwarmSpec) -> dict[str, str] | None:
    """The credentials that a spec gives, or those of ``docker login``; None where there are none.

    Those that a credential helper keeps are not read: give them in the spec.
    """
    registry = registry_of(spec.image)
    if spec.registry_username is not None and spec.registry_password is not None:
        return {
            "username": spec.registry_username,
            "password": spec.registry_password.get_secret_value(),
            "serveraddress": registry,
        }
    folder = Path(os.environ.get("DOCKER_CONFIG") or Path.home() / ".docker")
    try:
        stored: Any = json.loads((folder / "config.json").read_text())["auths"][registry]
        if token := stored.get("identitytoken"):
            return {"identitytoken": token, "serveraddress": registry}
        username, _, password = base64.b64decode(stored["auth"]).decode().partition(":")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, binascii.Error):
        return None  # nobody has logged in there
    return {"username": username, "password": password, "serveraddress": registry}
