"""Inference servers behind one door: JSON out and in, the least busy server first, failures tried again or named.

An `Endpoint` may be used from several event loops, one after another or at once: each has connections of its own.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import SplitResult, urlsplit

import anyio
import orjson
from anyio.lowlevel import RunVar

from openenv_trl.chance import CHANCE
from openenv_trl.errors import ConfigurationError, PolicyError
from openenv_trl.rollout.policies.http_connection import ConnectionTrouble, DirectExchange, Exchange, HttpAnswer
from openenv_trl.rollout.policies.patience import GiveUp, Patience, Trouble
from openenv_trl.rollout.policies.proxied import ProxiedExchange, proxy_applies
from openenv_trl.rollout.policies.server_choice import ServerChoice
from openenv_trl.rollout.policies.settings import EndpointSettings

_AWAY = frozenset({502, 503, 504})
_SHOWN = 400  # characters of a server's error that are repeated


class RequestRefused(Exception):
    """This request failed, others may not: what a `FailedCompletion` is made of.

    Attributes:
        status: The HTTP status; 0 where there was no answer in time, or none that could be read.
        retryable: Whether the same request may succeed later.
    """

    def __init__(self, message: str, *, status: int, retryable: bool) -> None:
        super().__init__(message)
        self.status = status
        self.retryable = retryable


@dataclass
class _Open:
    """What belongs to one event loop."""

    exchange: Exchange
    proxied: Exchange | None
    choice: ServerChoice
    turnstile: anyio.CapacityLimiter
    preparing: anyio.Lock
    users: int = 0
    proxies: dict[str, bool] = field(default_factory=dict[str, bool])


class Endpoint:
    """One or more servers of the same model.

    Args:
        base_urls: Their addresses, such as ``http://localhost:8000``; a path in them goes before every route.
        settings: How they are talked to.

    Raises:
        ConfigurationError: An address is no http or https URL, or there is none.
    """

    def __init__(self, base_urls: str | Sequence[str], settings: EndpointSettings | None = None) -> None:
        given = [base_urls] if isinstance(base_urls, str) else list(base_urls)
        self.settings = settings or EndpointSettings()
        self.urls = [_address(url) for url in given]
        if not self.urls:
            raise ConfigurationError("base_url is empty: give the address of an inference server.")
        self._open: RunVar[_Open] = RunVar("openenv_trl endpoint")
        self._headers = {"accept": "application/json", **self.settings.headers}
        if self.settings.api_key is not None:
            self._headers["authorization"] = f"Bearer {self.settings.api_key.get_secret_value()}"

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[None, None]:
        """Keep connections for the block, and close them after the last such block of this event loop."""
        here = self._here()
        here.users += 1
        try:
            yield
        finally:
            here.users -= 1
            if not here.users:
                with anyio.CancelScope(shield=True):
                    await self.aclose()

    async def aclose(self) -> None:
        """Close the idle connections of this event loop. The endpoint can be used again."""
        here = self._here()
        await here.exchange.aclose()
        if here.proxied is not None:
            await here.proxied.aclose()

    @property
    def preparing(self) -> anyio.Lock:
        """Held, in this event loop, by the one that asks what all need to know."""
        return self._here().preparing

    @property
    def names(self) -> str:
        """The addresses, for messages."""
        return ", ".join(url.geturl() for url in self.urls)

    async def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Post JSON, and read a JSON object.

        Args:
            path: The route, such as ``/v1/completions``.
            body: What is sent.

        Raises:
            RequestRefused: This request failed.
            ConfigurationError: No request like this can succeed: wrong credentials, route or model.
            PolicyError: No server has answered for longer than ``away_timeout_s``.
        """
        return await self._call("POST", path, orjson.dumps(body))

    async def get(self, path: str) -> dict[str, Any]:
        """Read a JSON object.

        Raises:
            RequestRefused: As for `post`.
            ConfigurationError: As for `post`.
            PolicyError: As for `post`.
        """
        return await self._call("GET", path, b"")

    async def _call(self, method: str, path: str, body: bytes) -> dict[str, Any]:
        here = self._here()
        patience = Patience(self.settings)
        while True:
            async with here.turnstile:
                server = here.choice.choose(anyio.current_time())
                answer, problem = await self._exchange(here, server, method, path, body)
            status = 0 if answer is None else answer.status
            url = self.urls[server].geturl()
            if answer is not None and status not in _AWAY and status != 429:
                return _read(answer, url + path)
            trouble = Trouble.BUSY if status == 429 else Trouble.AWAY
            now = anyio.current_time()
            decision = patience.failed(
                trouble,
                now,
                CHANCE.random(),
                retry_after_s=None if answer is None else _retry_after(answer),
                another_server=trouble is Trouble.AWAY and here.choice.any_well(now),
            )
            if isinstance(decision, GiveUp):
                raise self._given_up(trouble, decision, problem or _message(answer), path)
            await anyio.sleep(decision.delay_s)

    async def _exchange(
        self, here: _Open, server: int, method: str, path: str, body: bytes
    ) -> tuple[HttpAnswer | None, str]:
        """The answer, or None and why there is none."""
        url, trouble = self.urls[server], True
        headers = {**self._headers, "content-type": "application/json"} if body else self._headers
        try:
            with anyio.fail_after(self.settings.request_timeout_s):
                answer = await self._exchange_of(here, url).request(method, url, path, headers, body)
            trouble = answer.status in _AWAY
            return answer, ""
        except ConnectionTrouble as error:
            return None, str(error)
        except TimeoutError as error:
            trouble = False
            raise RequestRefused(
                f"{url.geturl()}{path} gave no answer within request_timeout_s={self.settings.request_timeout_s:g}",
                status=0,
                retryable=True,
            ) from error
        except BaseException:
            trouble = False  # cancelled: that was not the server's fault
            raise
        finally:
            here.choice.ended(server, anyio.current_time(), trouble=trouble)

    def _given_up(self, trouble: Trouble, decision: GiveUp, problem: str, path: str) -> Exception:
        urls = self.names
        if trouble is Trouble.BUSY:
            text = f"{urls} had too much to do for {decision.lasted_s:.0f} s (busy_timeout_s): {problem}"
            return RequestRefused(text, status=429, retryable=True)
        return PolicyError(
            f"The inference server at {urls} could not be reached for {decision.lasted_s:.0f} s: {problem}. Start it, "
            f"correct the address, or allow more time (away_timeout_s={self.settings.away_timeout_s:g}).",
            phase="generate",
        )

    def _exchange_of(self, here: _Open, url: SplitResult) -> Exchange:
        if url.netloc not in here.proxies:
            here.proxies[url.netloc] = proxy_applies(url)
        if not here.proxies[url.netloc]:
            return here.exchange
        if here.proxied is None:
            here.proxied = ProxiedExchange(self.settings)
        return here.proxied

    def _here(self) -> _Open:
        try:
            return self._open.get()
        except LookupError:
            here = _Open(
                DirectExchange(self.settings),
                None,
                ServerChoice(len(self.urls)),
                anyio.CapacityLimiter(self.settings.max_connections),
                anyio.Lock(),
            )
            self._open.set(here)
            return here


def _address(url: str) -> SplitResult:
    parts = urlsplit(url.strip().rstrip("/"))
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ConfigurationError(f"'{url}' is no address of a server: give one such as http://localhost:8000.")
    if parts.username or parts.password:
        raise ConfigurationError("Leave credentials out of base_url: set api_key in EndpointSettings, or a header.")
    return parts


def _read(answer: HttpAnswer, url: str) -> dict[str, Any]:
    status = answer.status
    if 200 <= status < 300:
        try:
            value: Any = orjson.loads(answer.body)
        except orjson.JSONDecodeError as error:
            text = f"{url} answered with something that is not JSON: {answer.body[:80]!r}"
            raise RequestRefused(text, status=0, retryable=True) from error
        if not isinstance(value, dict):
            raise RequestRefused(f"{url} answered with {value!r:.80}, not an object", status=0, retryable=True)
        return cast("dict[str, Any]", value)
    problem = f"{url} answered {status}: {_message(answer)}"
    if status in (401, 403):
        raise ConfigurationError(f"{problem}. Set api_key in EndpointSettings to a key that the server takes.")
    if status in (404, 405):
        raise ConfigurationError(
            f"{problem}. Either the model's name is not one that it serves, or the address is that of another kind of "
            "server (a base_url has no /v1 for token ids in and out)."
        )
    if 300 <= status < 400:
        raise ConfigurationError(f"{problem}. It redirects to {answer.headers.get('location', '?')}: use that address.")
    raise RequestRefused(problem, status=status, retryable=status >= 500 or status == 408)


def _message(answer: HttpAnswer | None) -> str:
    """The words of an error, wherever this kind of server puts them."""
    if answer is None:
        return ""
    try:
        value: Any = orjson.loads(answer.body)
    except orjson.JSONDecodeError:
        value = answer.body.decode("utf-8", "replace")
    for name in ("error", "detail", "message"):
        if isinstance(value, dict) and name in value:
            value = cast("dict[str, Any]", value)[name]
    text = value if isinstance(value, str) else orjson.dumps(value).decode()
    return re.sub(r"\s+", " ", text).strip()[:_SHOWN]


def _retry_after(answer: HttpAnswer) -> float | None:
    """Seconds, where the header gives seconds; a date is not read, the back-off does as well."""
    try:
        return max(0.0, float(answer.headers.get("retry-after", "")))
    except ValueError:
        return None
