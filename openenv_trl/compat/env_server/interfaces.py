"""The names of ``openenv.core.env_server.interfaces``."""

from openenv_trl.compat._names import names_of
from openenv_trl.env_server import (
    Action,
    Environment,
    EnvironmentMetadata,
    Message,
    ModelTokenizer,
    Observation,
    State,
    TaskProvider,
    Transform,
)
from openenv_trl.environment import ActT, ObsT, StateT

__all__ = [
    "ActT",
    "Action",
    "Environment",
    "EnvironmentMetadata",
    "Message",
    "ModelTokenizer",
    "ObsT",
    "Observation",
    "State",
    "StateT",
    "TaskProvider",
    "Transform",
]

__getattr__ = names_of(__name__)
