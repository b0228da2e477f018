"""Environment servers: `create_app` makes one of an environment class.

The names are imported when first used: the parent of several workers needs none of what they serve.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from openenv_trl.server.app import create_app
    from openenv_trl.server.capacity import ConcurrencyConfig

_HOME_OF = {"create_app": "openenv_trl.server.app", "ConcurrencyConfig": "openenv_trl.server.capacity"}

__all__ = ["ConcurrencyConfig", "create_app"]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value
