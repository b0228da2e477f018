"""What the Hugging Face Hub says of a Space: whether it runs, where, and who may reach it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import httpx

from openenv_trl.errors import ConfigurationError, ProviderError
from openenv_trl.providers.hub import ENDPOINT_VARIABLE, TOKEN_VARIABLE, hub_endpoint


@dataclass(frozen=True)
class SpaceStatus:
    """What the Hub says of a Space."""

    stage: str
    """``RUNNING``, ``SLEEPING``, ``BUILDING``, ``PAUSED``, ``RUNTIME_ERROR`` and so on."""
    private: bool
    """Whether a token is needed to reach it."""
    host: str
    """The address of what it serves; empty where the Hub does not say."""
    error: str = ""
    """Why it does not run, where the Hub says so."""


async def space_status(http: httpx.AsyncClient, repository: str, token: str | None) -> SpaceStatus:
    """Ask the Hub for a Space.

    Raises:
        ConfigurationError: There is no such Space, or it cannot be seen with this token.
        ProviderError: The Hub does not answer as it should.
    """
    url = f"{hub_endpoint()}/api/spaces/{repository}"
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        response = await http.get(url, headers=headers, follow_redirects=True)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise ProviderError(
            f"The Hub did not answer about the Space {repository} (GET {url}: {type(error).__name__}: {error}). Check "
            f"the network, or set {ENDPOINT_VARIABLE} to the Hub's address.",
            phase="start",
        ) from error
    if response.status_code in (401, 403, 404):
        raise ConfigurationError(_not_seen(repository, token, response.status_code), phase="start")
    try:
        said: Any = response.raise_for_status().json()
        runtime = cast("dict[str, Any]", said.get("runtime") or {})
        return SpaceStatus(
            stage=str(runtime.get("stage") or "UNKNOWN"),
            private=bool(said.get("private")),
            host=str(said.get("host") or "").rstrip("/"),
            error=str(runtime.get("errorMessage") or ""),
        )
    except (httpx.HTTPStatusError, ValueError, AttributeError) as error:
        raise ProviderError(
            f"The Hub's answer about the Space {repository} is not what it should be (GET {url}: "
            f"{response.status_code}, {response.text[:200]!r}). Try again later, or look at {ENDPOINT_VARIABLE}.",
            phase="start",
        ) from error


def _not_seen(repository: str, token: str | None, status: int) -> str:
    begin = f"The Space {repository} was not found, or may not be seen (the Hub answered {status})"
    if token:
        return f"{begin}. Check its name, and that the token that was sent may read it."
    return (
        f"{begin}. Check its name. If it is private, set {TOKEN_VARIABLE} to a token that may read it, pass token=, or "
        "run `hf auth login`."
    )
