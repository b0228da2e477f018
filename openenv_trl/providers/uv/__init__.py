"""Environment servers from a project's folder or git address, each in an environment that uv makes for it."""

from __future__ import annotations

from openenv_trl.providers.uv.provider import UVProvider
from openenv_trl.providers.uv.spec import UVSpec

__all__ = ["UVProvider", "UVSpec"]
