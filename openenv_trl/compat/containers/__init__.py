"""The place of ``openenv.core.containers``: its providers are in `openenv_trl.compat.containers.runtime`."""

from __future__ import annotations

from openenv_trl.compat._names import names_of

__getattr__ = names_of(__name__)
