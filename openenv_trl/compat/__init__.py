"""The module paths of the public package, so that a package written for it is ported by one rule.

In its import lines ``openenv.core`` becomes ``openenv_trl.compat``, whatever follows. Every name is this package's own
object under the public package's address; what has no counterpart says at its import what to use instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from openenv_trl import env_server as _env_server
from openenv_trl.compat._names import names_of

if TYPE_CHECKING:
    from openenv_trl.compat.env_client import *  # noqa: F403
    from openenv_trl.compat.env_server import *  # noqa: F403
    from openenv_trl.compat.generic_client import *  # noqa: F403
    from openenv_trl.compat.mcp_client import *  # noqa: F403
    from openenv_trl.compat.sync_client import *  # noqa: F403

_CLIENTS = ("EnvClient", "GenericAction", "GenericEnvClient", "MCPClientBase", "MCPToolClient", "SyncEnvClient")

if not TYPE_CHECKING:
    __all__ = [*_CLIENTS, *_env_server.__all__]  # noqa: PLE0604  # all are strings

__getattr__ = names_of(__name__, dict.fromkeys(_CLIENTS, "openenv_trl.client"))
