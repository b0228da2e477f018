"""OpenSpiel's games as OpenEnv environments: the client and its types. The games live in ``openspiel_env.server``.

The names are imported when first used, so that a server of this package loads no client, and a client no
server and no OpenSpiel.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from openspiel_env.client import OpenSpielEnv
    from openspiel_env.models import OpenSpielAction, OpenSpielObservation, OpenSpielState

_HOME_OF = {
    "OpenSpielAction": "openspiel_env.models",
    "OpenSpielEnv": "openspiel_env.client",
    "OpenSpielObservation": "openspiel_env.models",
    "OpenSpielState": "openspiel_env.models",
}

__all__ = ["OpenSpielAction", "OpenSpielEnv", "OpenSpielObservation", "OpenSpielState"]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME_OF[name]), name)
