"""The names of ``openenv.core.env_server``, imported when first used: an environment needs no server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from openenv_trl import env_server as _env_server
from openenv_trl.compat._names import names_of

if TYPE_CHECKING:
    from openenv_trl.compat.env_server.base_transforms import *  # noqa: F403
    from openenv_trl.compat.env_server.exceptions import *  # noqa: F403
    from openenv_trl.compat.env_server.http_server import *  # noqa: F403
    from openenv_trl.compat.env_server.interfaces import *  # noqa: F403
    from openenv_trl.compat.env_server.mcp_environment import *  # noqa: F403
    from openenv_trl.compat.env_server.mcp_types import *  # noqa: F403
    from openenv_trl.compat.env_server.serialization import *  # noqa: F403
    from openenv_trl.compat.env_server.types import *  # noqa: F403

if not TYPE_CHECKING:
    __all__ = _env_server.__all__

__getattr__ = names_of(__name__)
