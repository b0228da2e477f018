"""The names of ``openenv.core.sync_client``."""

from openenv_trl.client import SyncEnvClient
from openenv_trl.client.sync_client import ActT, ObsT, StateT
from openenv_trl.compat._names import names_of
from openenv_trl.types import StepResult

__all__ = ["ActT", "ObsT", "StateT", "StepResult", "SyncEnvClient"]

__getattr__ = names_of(__name__)
