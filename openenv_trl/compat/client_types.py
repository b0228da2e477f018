"""The names of ``openenv.core.client_types``."""

from openenv_trl.client.env_client import StateT
from openenv_trl.compat._names import names_of
from openenv_trl.types import ObsT, StepResult

__all__ = ["ObsT", "StateT", "StepResult"]

__getattr__ = names_of(__name__)
