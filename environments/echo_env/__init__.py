"""Echo as an OpenEnv environment: it says back what it is told. The environment is in ``echo_env.server``.

The names are imported when first used, so that a server of this package loads no client, and a client no server.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from echo_env.client import EchoEnv
    from echo_env.models import CallToolAction, CallToolObservation

_HOME_OF = {
    "CallToolAction": "echo_env.models",
    "CallToolObservation": "echo_env.models",
    "EchoEnv": "echo_env.client",
}

__all__ = ["CallToolAction", "CallToolObservation", "EchoEnv"]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME_OF[name]), name)
