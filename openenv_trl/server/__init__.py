"""Environment servers: `create_app` makes one of an environment class."""

from openenv_trl.server.app import create_app
from openenv_trl.server.capacity import ConcurrencyConfig

__all__ = ["ConcurrencyConfig", "create_app"]
