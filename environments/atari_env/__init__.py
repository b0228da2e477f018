"""Atari 2600 games as OpenEnv environments: the client and its types. The console is in ``atari_env.server``.

The names are imported when first used, so that a server of this package loads no client, and a client no
server and no emulator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from openenv_trl.lazy_names import lazy_names

if TYPE_CHECKING:
    from atari_env.client import AtariEnv
    from atari_env.models import AtariAction, AtariObservation, AtariState

__all__ = ["AtariAction", "AtariEnv", "AtariObservation", "AtariState"]

__getattr__ = lazy_names(
    __name__,
    {
        "atari_env.client": ("AtariEnv",),
        "atari_env.models": ("AtariAction", "AtariObservation", "AtariState"),
    },
)
