"""Environment servers: `create_app` makes one of an environment class.

The names are imported when first used: the parent of several workers needs none of what they serve.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from openenv_trl.lazy_names import lazy_names

if TYPE_CHECKING:
    from openenv_trl.server.app import create_app
    from openenv_trl.server.capacity import ConcurrencyConfig

__getattr__ = lazy_names(
    __name__,
    {"openenv_trl.server.app": ("create_app",), "openenv_trl.server.capacity": ("ConcurrencyConfig",)},
)

__all__ = ["ConcurrencyConfig", "create_app"]
