"""Blackjack as an OpenEnv environment: the client and its types. The rules live in ``blackjack_env.server``.

The names are imported when first used, so that a server of this package loads no client, and a client no
server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from openenv_trl.lazy_names import lazy_names

if TYPE_CHECKING:
    from blackjack_env.client import BlackjackEnv
    from blackjack_env.models import BlackjackAction, BlackjackObservation, BlackjackState

__all__ = ["BlackjackAction", "BlackjackEnv", "BlackjackObservation", "BlackjackState"]

__getattr__ = lazy_names(
    __name__,
    {
        "blackjack_env.client": ("BlackjackEnv",),
        "blackjack_env.models": ("BlackjackAction", "BlackjackObservation", "BlackjackState"),
    },
)
