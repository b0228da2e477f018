"""The app that serves the Gymnasium environment that GYMNASIUM_ENV names: ``uvicorn openenv_trl.gymnasium.app:app``.

GYMNASIUM_ENV is as `app_for` takes it: ``CartPole-v1``, ``ale_py:ALE/Pong-v5?frameskip=4``. MAX_CONCURRENT_ENVS limits
the sessions of one process.
"""

from __future__ import annotations

import os

from openenv_trl.errors import ConfigurationError
from openenv_trl.gymnasium.serving import app_for

_name = os.environ.get("GYMNASIUM_ENV", "")
if not _name:
    raise ConfigurationError("Set GYMNASIUM_ENV to the Gymnasium environment to serve, such as CartPole-v1.")

app = app_for(_name)
