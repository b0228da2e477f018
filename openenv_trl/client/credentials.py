"""The trainer's token on the client's side: sent by default, so that one variable opens client and server alike."""

from __future__ import annotations

import os
from collections.abc import Mapping

TOKEN_VARIABLE = "OPENENV_TRL_TOKEN"
"""The environment variable that holds the trainer's token."""


def with_token(headers: Mapping[str, str] | None) -> Mapping[str, str] | None:
    """Return the headers with ``Authorization: Bearer $OPENENV_TRL_TOKEN`` added.

    Nothing is added where the variable is not set, or an ``Authorization`` header is given: pass one of your own for a
    server that the token is not meant for.
    """
    token = os.environ.get(TOKEN_VARIABLE, "").strip()
    if not token or any(name.lower() == "authorization" for name in headers or {}):
        return headers
    return {**(headers or {}), "Authorization": f"Bearer {token}"}
