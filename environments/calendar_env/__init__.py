"""A company's calendars as an OpenEnv environment: the client and its types. The rest is in ``calendar_env.server``.

The names are imported when first used, so that a server of this package loads no client, and a client no server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from openenv_trl.lazy_names import lazy_names

if TYPE_CHECKING:
    from calendar_env.client import CalendarEnv
    from calendar_env.models import CalendarAction, CalendarObservation, CalendarState

__all__ = ["CalendarAction", "CalendarEnv", "CalendarObservation", "CalendarState"]

__getattr__ = lazy_names(
    __name__,
    {
        "calendar_env.client": ("CalendarEnv",),
        "calendar_env.models": ("CalendarAction", "CalendarObservation", "CalendarState"),
    },
)
