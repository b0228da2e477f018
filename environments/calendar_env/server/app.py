"""The app that serves calendars: ``uvicorn calendar_env.server.app:app``.

``CALENDAR_TOOLS`` ("all", or "core" for fewer tools), ``CALENDAR_MAX_STEPS`` and ``CALENDAR_REWARD`` ("task", "public")
in the environment variables say how episodes are played, and ``MAX_CONCURRENT_ENVS`` limits the sessions of one
process; a session holds about a quarter of a megabyte.
"""

from __future__ import annotations

import functools
import os

from calendar_env.models import CalendarAction, CalendarObservation, CalendarState
from calendar_env.server.calendar_environment import CalendarEnvironment
from calendar_env.server.settings import settings_from_variables
from openenv_trl.server import create_app

app = create_app(
    functools.partial(CalendarEnvironment, settings_from_variables(os.environ)),
    CalendarAction,
    CalendarObservation,
    env_name="calendar_env",
    max_concurrent_envs=int(os.environ.get("MAX_CONCURRENT_ENVS", "1024")),
    state_cls=CalendarState,
)
