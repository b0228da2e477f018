"""A company's calendars as an OpenEnv environment: the client and its types. The rest is in ``calendar_env.server``.

The names are imported when first used, so that a server of this package loads no client, and a client no server.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from calendar_env.client import CalendarEnv
    from calendar_env.models import CalendarAction, CalendarObservation, CalendarState

_HOME_OF = {
    "CalendarAction": "calendar_env.models",
    "CalendarEnv": "calendar_env.client",
    "CalendarObservation": "calendar_env.models",
    "CalendarState": "calendar_env.models",
}

__all__ = ["CalendarAction", "CalendarEnv", "CalendarObservation", "CalendarState"]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME_OF[name]), name)
