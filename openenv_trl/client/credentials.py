"""The trainer's token on the client's side: sent by default, so that one variable opens client and server alike."""

from __future__ import annotations

import os
from collections.abc import Mapping
from urllib.parse import urlsplit

TOKEN_VARIABLE = "OPENENV_TRL_TOKEN"
"""The environment variable that holds the trainer's token."""


def with_token(headers: Mapping[str, str] | None, base_url: str | None) -> Mapping[str, str] | None:
    """Return the headers with ``Authorization: Bearer $OPENENV_TRL_TOKEN`` added.

    Nothing is added where the variable is not set, an ``Authorization`` header is given, or the address has a user and
    a password in it: pass a header of your own for a server that the token is not meant for.
    """
    token = os.environ.get(TOKEN_VARIABLE, "").strip()
    if not token or _has_credentials(base_url or ""):
        return headers
    if any(name.lower() == "authorization" for name in headers or {}):
        return headers
    return {**(headers or {}), "Authorization": f"Bearer {token}"}


def _has_credentials(base_url: str) -> bool:
    try:
        return "@" in urlsplit(base_url if "://" in base_url else f"//{base_url}").netloc
    except ValueError:  # no address at all, which is told where it is used
        return False
