"""Blackjack as an OpenEnv environment: the client and its types. The rules live in ``blackjack_env.server``.

The names are imported when first used, so that a server of this package loads no client, and a client no
server.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from blackjack_env.client import BlackjackEnv
    from blackjack_env.models import BlackjackAction, BlackjackObservation, BlackjackState

_HOME_OF = {
    "BlackjackAction": "blackjack_env.models",
    "BlackjackEnv": "blackjack_env.client",
    "BlackjackObservation": "blackjack_env.models",
    "BlackjackState": "blackjack_env.models",
}

__all__ = ["BlackjackAction", "BlackjackEnv", "BlackjackObservation", "BlackjackState"]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME_OF[name]), name)
