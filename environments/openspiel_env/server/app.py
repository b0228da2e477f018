"""The app that serves one of OpenSpiel's games: ``uvicorn openspiel_env.server.app:app``.

Environment variables say which and how: ``OPENSPIEL_GAME`` (catch if unset), ``OPENSPIEL_GAME_PARAMS`` (JSON),
``OPENSPIEL_AGENT_PLAYER``, ``OPENSPIEL_OPPONENT_POLICY``, ``OPENSPIEL_ILLEGAL_MOVES``, and the others of
``settings.ENVIRONMENT_VARIABLES``; ``MAX_CONCURRENT_ENVS`` limits the sessions of one process.
"""

from __future__ import annotations

import functools
import os

from openenv_trl.server import create_app
from openspiel_env.models import OpenSpielAction, OpenSpielObservation, OpenSpielState
from openspiel_env.server.openspiel_environment import environment_class
from openspiel_env.server.settings import settings_from_variables

_game_class = environment_class(os.environ.get("OPENSPIEL_GAME") or "catch")
_settings = settings_from_variables(os.environ)
_factory = functools.partial(_game_class, _settings)
# Here, so that a game or a policy that cannot be played stops the server's start, and not its first session.
_game_class.prepare(_settings)

app = create_app(
    _factory,
    OpenSpielAction,
    OpenSpielObservation,
    env_name="openspiel_env",
    max_concurrent_envs=int(os.environ.get("MAX_CONCURRENT_ENVS", "1024")),
    state_cls=OpenSpielState,
)
