"""The names of ``openenv.core.env_server.exceptions``."""

from openenv_trl.compat._names import names_of
from openenv_trl.env_server import (
    ConcurrencyConfigurationError,
    EnvironmentFactoryError,
    OpenEnvError,
    SessionCapacityError,
    SessionCreationError,
    SessionNotFoundError,
)

__all__ = [
    "ConcurrencyConfigurationError",
    "EnvironmentFactoryError",
    "OpenEnvError",
    "SessionCapacityError",
    "SessionCreationError",
    "SessionNotFoundError",
]

__getattr__ = names_of(__name__)
