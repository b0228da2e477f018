"""The app that serves sandboxed Python: ``uvicorn coding_env.server.app:app``.

Environment variables that begin with ``CODING_`` say how episodes are played and what sessions may use (see the
package's README); ``MAX_CONCURRENT_ENVS`` limits the sessions of one process.
"""

from __future__ import annotations

import functools
import os

from coding_env.models import CodeAction, CodeObservation, CodeState
from coding_env.server.coding_environment import CodingEnvironment
from coding_env.server.settings import settings_from_variables
from openenv_trl.server import create_app

_factory = functools.partial(CodingEnvironment, *settings_from_variables(os.environ))
_factory()  # so that a sandbox that is worth too little stops the server's start, and says what is missing

app = create_app(
    _factory,
    CodeAction,
    CodeObservation,
    env_name="coding_env",
    max_concurrent_envs=int(os.environ.get("MAX_CONCURRENT_ENVS", "128")),
    state_cls=CodeState,
)
