"""What a server says of itself over HTTP, without a session: its health, its schemas, its environment's description."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from openenv_trl.client.address import server_address
from openenv_trl.client.credentials import with_token
from openenv_trl.errors import ConnectionFailedError, DeadlineExceededError, ProtocolError


async def fetch_schema(
    base_url: str, timeout_s: float = 10.0, *, headers: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return the JSON Schemas of ``action``, ``observation`` and ``state``.

    Args:
        base_url: The server's address.
        timeout_s: Seconds for the answer.
        headers: Sent with the request, as `EnvClient` sends them.

    Raises:
        ConnectionFailedError: No server answered at the address.
        DeadlineExceededError: It did not answer in time.
        ProtocolError: What answered is no OpenEnv server.
    """
    return await _fetch(base_url, "/schema", ("action", "observation", "state"), timeout_s, headers)


async def fetch_health(
    base_url: str, timeout_s: float = 10.0, *, headers: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return the server's health, ``{"status": "healthy"}``. Takes and raises what `fetch_schema` does."""
    return await _fetch(base_url, "/health", ("status",), timeout_s, headers)


async def fetch_metadata(
    base_url: str, timeout_s: float = 10.0, *, headers: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return the environment's ``name``, ``description`` and more. Takes and raises what `fetch_schema` does."""
    return await _fetch(base_url, "/metadata", ("name", "description"), timeout_s, headers)


async def fetch_capacity(
    base_url: str, timeout_s: float = 10.0, *, headers: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return how many sessions the server has and can have: ``active_sessions``, ``max_sessions`` and more.

    Takes and raises what `fetch_schema` does. Only servers of this package tell; others are a ProtocolError.
    """
    return await _fetch(base_url, "/capacity", ("max_sessions",), timeout_s, headers)


async def fetch_promises(
    base_url: str, timeout_s: float = 10.0, *, headers: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return what the environment's class declares: ``{"repeatable": bool}``, whether an episode can be played again.

    Takes and raises what `fetch_schema` does. Only servers of this package tell; others are a ProtocolError.
    """
    return await _fetch(base_url, "/promises", ("repeatable",), timeout_s, headers)


async def _fetch(
    base_url: str, path: str, keys: tuple[str, ...], timeout_s: float, headers: Mapping[str, str] | None
) -> dict[str, Any]:
    import httpx  # a tenth of a second that most clients do not need

    address = server_address(base_url)
    url = f"{address.http_url}{path}"
    secure = url.startswith("https")
    try:
        async with httpx.AsyncClient(timeout=timeout_s, verify=secure, trust_env=not address.is_loopback) as http:
            response = await http.get(url, headers=with_token(headers, base_url), follow_redirects=True)
    except httpx.TimeoutException as error:
        raise DeadlineExceededError(f"No answer from {url} within {timeout_s:g} s.", phase="connect") from error
    except httpx.HTTPError as error:
        raise ConnectionFailedError(
            f"Cannot fetch {url}: {error}. Check that the server is up, and its host and port.", phase="connect"
        ) from error
    try:
        body: Any = response.json() if response.status_code == 200 else None
    except ValueError:
        body = None
    if response.status_code in (401, 403):
        raise ConnectionFailedError(
            f"{url} refused the request with status {response.status_code}. Set its token in the environment variable "
            "OPENENV_TRL_TOKEN, or pass the headers that it asks for: headers={'Authorization': 'Bearer ...'}.",
            phase="connect",
        )
    if not isinstance(body, dict) or not all(key in body for key in keys):
        raise ProtocolError(
            f"{url} answered with status {response.status_code}, but not as an OpenEnv server does: "
            f"{response.text[:200]}",
            phase="connect",
        )
    return cast("dict[str, Any]", body)
