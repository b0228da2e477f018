"""The app that serves blackjack: ``uvicorn blackjack_env.server.app:app``.

``MAX_CONCURRENT_ENVS`` in the environment variables limits the sessions of one process; a hand holds a few
hundred bytes.
"""

from __future__ import annotations

import os

from blackjack_env.models import BlackjackAction, BlackjackObservation, BlackjackState
from blackjack_env.server.blackjack_environment import BlackjackEnvironment
from openenv_trl.server import create_app

app = create_app(
    BlackjackEnvironment,
    BlackjackAction,
    BlackjackObservation,
    env_name="blackjack_env",
    max_concurrent_envs=int(os.environ.get("MAX_CONCURRENT_ENVS", "1024")),
    state_cls=BlackjackState,
)
