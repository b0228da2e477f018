"""A sandboxed Python as an OpenEnv environment: the client and its types. What runs code is in ``coding_env.sandbox``.

The names are imported when first used, so that a server of this package loads no client, and a client no server.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coding_env.client import CodingEnv
    from coding_env.models import CodeAction, CodeObservation, CodeState

_HOME_OF = {
    "CodeAction": "coding_env.models",
    "CodeObservation": "coding_env.models",
    "CodeState": "coding_env.models",
    "CodingEnv": "coding_env.client",
}

__all__ = ["CodeAction", "CodeObservation", "CodeState", "CodingEnv"]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME_OF[name]), name)
