"""The app that serves the echo: ``uvicorn echo_env.server.app:app``.

``MAX_CONCURRENT_ENVS`` in the environment variables limits the sessions of one process; a session holds a name and a
number.
"""

from __future__ import annotations

import os

from echo_env.models import CallToolAction, CallToolObservation
from echo_env.server.echo_environment import EchoEnvironment
from openenv_trl.server import create_app

app = create_app(
    EchoEnvironment,
    CallToolAction,
    CallToolObservation,
    env_name="echo_env",
    max_concurrent_envs=int(os.environ.get("MAX_CONCURRENT_ENVS", "1024")),
)
