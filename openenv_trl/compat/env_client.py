"""The names of ``openenv.core.env_client``."""

from openenv_trl.client import EnvClient
from openenv_trl.client.env_client import ActT, ObsT, StateT
from openenv_trl.compat._names import names_of
from openenv_trl.types import StepResult

__all__ = ["ActT", "EnvClient", "ObsT", "StateT", "StepResult"]

__getattr__ = names_of(__name__)
