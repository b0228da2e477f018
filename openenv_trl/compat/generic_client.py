"""The names of ``openenv.core.generic_client``."""

from openenv_trl.client import EnvClient, GenericAction, GenericEnvClient
from openenv_trl.compat._names import names_of

__all__ = ["EnvClient", "GenericAction", "GenericEnvClient"]

__getattr__ = names_of(__name__)
