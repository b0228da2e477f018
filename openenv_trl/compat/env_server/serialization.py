"""The names of ``openenv.core.env_server.serialization``."""

from openenv_trl.compat._names import names_of
from openenv_trl.env_server import deserialize_action, serialize_observation

__all__ = ["deserialize_action", "serialize_observation"]

__getattr__ = names_of(__name__)
