"""The names of ``openenv.core.env_server.base_transforms``."""

from openenv_trl.compat._names import names_of
from openenv_trl.env_server import CompositeTransform, NullTransform, Transform

__all__ = ["CompositeTransform", "NullTransform", "Transform"]

__getattr__ = names_of(__name__)
