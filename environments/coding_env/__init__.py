"""A sandboxed Python as an OpenEnv environment: the client and its types. What runs code is in ``coding_env.sandbox``.

The names are imported when first used, so that a server of this package loads no client, and a client no server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from openenv_trl.lazy_names import lazy_names

if TYPE_CHECKING:
    from coding_env.client import CodingEnv
    from coding_env.models import CodeAction, CodeObservation, CodeState

__all__ = ["CodeAction", "CodeObservation", "CodeState", "CodingEnv"]

__getattr__ = lazy_names(
    __name__,
    {
        "coding_env.client": ("CodingEnv",),
        "coding_env.models": ("CodeAction", "CodeObservation", "CodeState"),
    },
)
