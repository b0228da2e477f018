"""Atari 2600 games as OpenEnv environments: the client and its types. The console is in ``atari_env.server``.

The names are imported when first used, so that a server of this package loads no client, and a client no
server and no emulator.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from atari_env.client import AtariEnv
    from atari_env.models import AtariAction, AtariObservation, AtariState

_HOME_OF = {
    "AtariAction": "atari_env.models",
    "AtariEnv": "atari_env.client",
    "AtariObservation": "atari_env.models",
    "AtariState": "atari_env.models",
}

__all__ = ["AtariAction", "AtariEnv", "AtariObservation", "AtariState"]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME_OF[name]), name)
