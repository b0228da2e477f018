"""Echo as an OpenEnv environment: it says back what it is told. The environment is in ``echo_env.server``.

The names are imported when first used, so that a server of this package loads no client, and a client no server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from openenv_trl.lazy_names import lazy_names

if TYPE_CHECKING:
    from echo_env.client import EchoEnv
    from echo_env.models import CallToolAction, CallToolObservation

__all__ = ["CallToolAction", "CallToolObservation", "EchoEnv"]

__getattr__ = lazy_names(
    __name__,
    {
        "echo_env.client": ("EchoEnv",),
        "echo_env.models": ("CallToolAction", "CallToolObservation"),
    },
)
