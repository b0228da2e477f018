"""Who may do what: the trainer's token, the agent's token, and where a browser may come from.

Pure: a request's path and headers in, a refusal or None out. Tokens are compared in constant time, and stand in no
text, log or repr. They travel in headers only: a query would end up in access logs. That header is ``Authorization``; a
page cannot give it to its socket, so the debug page's offers the token as a subprotocol (`TOKEN_PROTOCOL`).

With ``token`` set, every route but the probes needs it. ``agent_token`` opens ``/mcp`` over HTTP and nothing else;
there, an agent lists and calls tools, and cannot begin, step or read an episode (`refusal_of_method`).

A browser says in ``Origin`` which page sends a request, and any page in the world can make one to a server on the
user's own machine. So a foreign ``Origin`` is refused, token or not. ``Host`` alone does not prove that the page is
the server's own: a hostile name may resolve to 127.0.0.1 (DNS rebinding). Without a token, only names that nobody
outside can own count: addresses, names without a dot, ``.localhost``, ``.local``.
"""

from __future__ import annotations

import base64
import hmac
import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any
from urllib.parse import urlsplit

from pydantic import SecretStr

from openenv_trl.errors import ConfigurationError
from openenv_trl.server.settings import AppSettings

OPEN_PATHS = frozenset({"/health", "/ready"})
"""What probes ask, without a token."""

AGENT_PATH = "/mcp"
"""What the agent's token opens."""

PAGE_SOCKET = "/ws/ui"
"""The debug page's socket."""

TOKEN_PROTOCOL = "openenv.token."
"""How the subprotocol begins that carries a token there; the rest is the token in base64url, without padding."""

_AGENT_METHODS = frozenset({"tools/list", "tools/call"})
_DEFAULT_PORTS = {"http": ":80", "https": ":443"}


class Role(Enum):
    """On whose behalf a request comes."""

    TRAINER = "trainer"
    AGENT = "agent"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request is not let in.

    Attributes:
        status: The HTTP status: 401 without a token that fits, 403 where no token helps.
        message: What to change.
    """

    status: int
    message: str


class AccessControl:
    """Decides about each request and each WebSocket handshake.

    Args:
        settings: The tokens and the allowed origins.
        own_hosts: Names of this server beyond those that are recognised, such as ``my-space.hf.space``.
        open_paths: What needs no token beside the probes: the debug page's files, which tell nothing.

    Raises:
        ConfigurationError: A token cannot travel in a header, or the two make no sense together.
    """

    def __init__(self, settings: AppSettings, own_hosts: Iterable[str] = (), open_paths: Iterable[str] = ()) -> None:
        self._open_paths = OPEN_PATHS | frozenset(open_paths)
        self._token = _checked(settings.token, "token")
        self._agent_token = _checked(settings.agent_token, "agent_token")
        if self._agent_token is not None:
            if self._token is None:
                raise ConfigurationError(
                    "agent_token is set, but token is not: the trainer's routes would stay open to the agent. "
                    "Set token (OPENENV_TRL_TOKEN) too."
                )
            if hmac.compare_digest(self._token, self._agent_token):
                raise ConfigurationError(
                    "token and agent_token are the same: the agent could reset and step. Make them differ."
                )
        self._any_origin = "*" in settings.allowed_origins
        self._origins = frozenset(_normal_origin(each) for each in settings.allowed_origins)
        self._own_hosts = frozenset(name.lower() for name in own_hosts if name)

    @property
    def needs_token(self) -> bool:
        """Whether a token is needed at all."""
        return self._token is not None

    def check(self, path: str, headers: Mapping[str, str], query: Mapping[str, str] | None = None) -> Refusal | None:
        """Return why the request is refused; None if it may pass.

        Args:
            path: The path, without the query.
            headers: The headers, with names in lower case.
            query: The query's parameters. They never hold a token.
        """
        origin = headers.get("origin")
        if origin is not None and not self._is_known(origin, headers.get("host", "")):
            return Refusal(
                403,
                f"Pages of the origin {origin[:200]!r} may not use this server. "
                "If they should, add the origin to OPENENV_TRL_ALLOWED_ORIGINS.",
            )
        if self._token is None or path in self._open_paths:
            return None
        role = self.role(headers, path)
        if role is None:
            given = "The token does not fit." if "authorization" in headers else "This server needs a token."
            return Refusal(401, f"{given} Send the header 'Authorization: Bearer <token>' (OPENENV_TRL_TOKEN).")
        if role is Role.AGENT and (path != AGENT_PATH or "websocket" in headers.get("upgrade", "").lower()):
            return Refusal(
                403, f"The agent's token opens the tools at {AGENT_PATH} over HTTP only; this needs the trainer's."
            )
        return None

    def role(self, headers: Mapping[str, str], path: str = "") -> Role | None:
        """Return who sends the request: always the trainer where no token is set, None where none fits."""
        if self._token is None:
            return Role.TRAINER
        authorization = headers.get("authorization")
        if authorization is None:
            authorization = _of_subprotocol(headers) if path == PAGE_SOCKET else ""
        scheme, _, given = authorization.strip().partition(" ")
        presented = given.strip().encode("utf-8", "replace")
        # Both are compared, whatever the first says: the time tells nothing.
        is_trainer = hmac.compare_digest(presented, self._token)
        is_agent = self._agent_token is not None and hmac.compare_digest(presented, self._agent_token)
        if scheme.lower() != "bearer":
            return None
        if is_trainer:
            return Role.TRAINER
        return Role.AGENT if is_agent else None

    def _is_known(self, origin: str, host: str) -> bool:
        if self._any_origin or _normal_origin(origin) in self._origins:
            return True
        try:
            parts = urlsplit(origin)
            name = (parts.hostname or "").lower()
        except ValueError:
            return False
        own, asked = (_without_default_port(each, parts.scheme) for each in (host, parts.netloc))
        if not name or own != asked:
            return False
        return self._token is not None or name in self._own_hosts or _belongs_to_nobody_else(name)


def refusal_of_method(role: Role, method: str, params: Mapping[str, Any]) -> str | None:
    """Return why a caller may not use a method of the public JSON-RPC dialect; None if it may.

    An agent lists and calls the tools of the session that the trainer named to it. It opens and closes none.
    """
    if role is Role.TRAINER:
        return None
    if method not in _AGENT_METHODS:
        return f"The agent's token does not open '{method}': it lists and calls tools only."
    if not params.get("session_id"):
        return f"The agent's token needs params.session_id for '{method}': the session that the trainer opened."
    return None


def _of_subprotocol(headers: Mapping[str, str]) -> str:
    """What the header would be whose token a page offers as a subprotocol."""
    offered = [each.strip() for each in headers.get("sec-websocket-protocol", "").split(",")]
    found = next((each for each in offered if each.startswith(TOKEN_PROTOCOL)), "").removeprefix(TOKEN_PROTOCOL)
    try:
        token = base64.urlsafe_b64decode(found + "=" * (-len(found) % 4)).decode("ascii")
    except ValueError:
        return ""
    return f"Bearer {token}" if token else ""


def _checked(secret: SecretStr | None, name: str) -> bytes | None:
    if secret is None:
        return None
    value = secret.get_secret_value()
    if not value or not value.isascii() or not value.isprintable() or " " in value:
        raise ConfigurationError(
            f"{name} (OPENENV_TRL_{name.upper()}) is empty, or has characters that a header cannot carry: use letters "
            "and digits, as `openssl rand -hex 32` makes them."
        )
    return value.encode()


def _normal_origin(origin: str) -> str:
    scheme, separator, netloc = origin.strip().lower().rstrip("/").partition("://")
    return f"{scheme}{separator}{_without_default_port(netloc, scheme)}"


def _without_default_port(netloc: str, scheme: str) -> str:
    return netloc.lower().removesuffix(_DEFAULT_PORTS.get(scheme, ""))


def _belongs_to_nobody_else(name: str) -> bool:
    if name == "localhost" or name.endswith((".localhost", ".local")) or ("." not in name and ":" not in name):
        return bool(name)
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
