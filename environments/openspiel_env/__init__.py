"""OpenSpiel's games as OpenEnv environments: the client and its types. The games live in ``openspiel_env.server``.

The names are imported when first used, so that a server of this package loads no client, and a client no
server and no OpenSpiel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from openenv_trl.lazy_names import lazy_names

if TYPE_CHECKING:
    from openspiel_env.client import OpenSpielEnv
    from openspiel_env.models import OpenSpielAction, OpenSpielObservation, OpenSpielState

__all__ = ["OpenSpielAction", "OpenSpielEnv", "OpenSpielObservation", "OpenSpielState"]

__getattr__ = lazy_names(
    __name__,
    {
        "openspiel_env.client": ("OpenSpielEnv",),
        "openspiel_env.models": ("OpenSpielAction", "OpenSpielObservation", "OpenSpielState"),
    },
)
