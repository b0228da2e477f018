"""The names of ``openenv.core.env_server.http_server``."""

from openenv_trl.compat._names import names_of
from openenv_trl.env_server import HTTPEnvServer, create_app, create_fastapi_app

__all__ = ["HTTPEnvServer", "create_app", "create_fastapi_app"]

__getattr__ = names_of(__name__)
