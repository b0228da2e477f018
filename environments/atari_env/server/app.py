"""The app that serves an Atari game: ``uvicorn atari_env.server.app:app``.

Environment variables say which and how: ``ATARI_GAME`` (pong if unset), and for each of `AtariSettings` one,
``ATARI_OBS_TYPE``, ``ATARI_FRAMESKIP`` and so on; ``MAX_CONCURRENT_ENVS`` limits the sessions of one process.
"""

from __future__ import annotations

import functools
import os

from atari_env.models import AtariAction, AtariObservation, AtariState
from atari_env.server.atari_environment import environment_class
from atari_env.server.settings import settings_from_variables
from openenv_trl.server import create_app

_game_class = environment_class(os.environ.get("ATARI_GAME") or "pong")
_factory = functools.partial(_game_class, settings_from_variables(os.environ))
_factory().check()  # so that a game that cannot be played stops the server's start, not its first session

app = create_app(
    _factory,
    AtariAction,
    AtariObservation,
    env_name="atari_env",
    max_concurrent_envs=int(os.environ.get("MAX_CONCURRENT_ENVS", "256")),
    state_cls=AtariState,
)
