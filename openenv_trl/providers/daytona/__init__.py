"""Environment servers in sandboxes of Daytona. Needs the extra ``daytona``; its SDK is imported when one is started."""

from __future__ import annotations

from openenv_trl.providers.daytona.provider import DaytonaProvider
from openenv_trl.providers.daytona.spec import DaytonaSpec

__all__ = ["DaytonaProvider", "DaytonaSpec"]
