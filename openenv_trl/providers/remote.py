"""Environment servers that run already, somewhere: nothing is started or stopped, only watched."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Annotated, Any, Literal, cast
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, model_validator

from openenv_trl.errors import ProviderError, ServerStartError
from openenv_trl.providers.base import Replica, ReplicaExit
from openenv_trl.providers.polled import Ended, PolledProvider
from openenv_trl.providers.server_identity import server_identity
from openenv_trl.providers.spec import ServerSpec, Text
from openenv_trl.providers.spec_fields import spec_or_fields
from openenv_trl.providers.web_health import http_address

ELSEWHERE = "(It runs elsewhere: its lines are not seen from here.)"

_NOBODY_S = 5.0


def _checked(url: str) -> str:
    try:
        parts = urlsplit(http_address(url))
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise ValueError(f"'{url}' is no address: {error}") from error
    if parts.scheme not in ("http", "https") or not host:
        raise ValueError(f"'{url}' is no address of a server: write it as http://host:port or https://host")
    return url.strip()


def _is_nobody(answer: str) -> bool:
    """Whether no connection came about; see `WebHealth.ask`."""
    return answer.startswith("ConnectError")


class RemoteSpec(ServerSpec, frozen=True):
    """Servers that run already."""

    type: Literal["remote"] = "remote"
    urls: list[Annotated[str, AfterValidator(_checked)]] = Field(min_length=1)
    """Their addresses, such as ``https://games.example.org``; each is a replica."""
    headers: dict[str, Text] = Field(default_factory=dict[str, Text], repr=False)
    """HTTP headers that every request to them needs, such as ``Authorization``."""
    check_every_s: float = Field(default=5.0, gt=0)
    """Seconds between two health checks of a server."""
    dead_after_s: float = Field(default=15.0, gt=0)
    """Seconds without a healthy answer after which a server counts as dead."""

    @model_validator(mode="before")
    @classmethod
    def _count(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        fields = cast("dict[str, Any]", given)
        urls = fields.get("urls")
        if "replicas" not in fields and isinstance(urls, list | tuple) and urls:
            return {**fields, "replicas": len(cast("list[Any]", urls))}
        return fields

    @model_validator(mode="after")
    def _check(self) -> RemoteSpec:
        if self.replicas > len(self.urls):
            raise ValueError(f"replicas={self.replicas}, but there are {len(self.urls)} urls: name more, or want fewer")
        if self.env_vars:
            raise ValueError("env_vars cannot be set on servers that run already: set them where they are started")
        seen: dict[str, str] = {}
        for url in self.urls:
            twin = seen.setdefault(server_identity(url), url)
            if twin != url or self.urls.count(url) > 1:
                raise ValueError(f"urls names a server twice, as '{twin}' and '{url}': name it once")
        return self


class RemoteProvider(PolledProvider[RemoteSpec]):
    """Uses servers that run already.

    ``start`` asks each for its health. ``stop`` stops nothing. A server is alive as long as it answers its health
    check; one that has not for ``dead_after_s`` seconds, asked every ``check_every_s``, counts as ended, and
    `wait_exited` tells of it. `remove_replica` sets its address free, which `add_replica` then tries again.

    Args:
        spec: A `RemoteSpec`, or one address, or a list of them; None where ``start`` is given a spec.
        on_exit: Called when a server no longer answers, from a thread of the provider's own.
        on_log: Never called: their lines are not seen from here.
        **fields: Fields of a `RemoteSpec`, in place of one.

    Example:
        >>> with RemoteProvider(["https://a.example.org", "https://b.example.org"]) as servers:
        ...     print(servers.base_urls)
    """

    SPEC = RemoteSpec

    def __init__(
        self,
        spec: RemoteSpec | str | list[str] | None = None,
        *,
        on_exit: Callable[[ReplicaExit], None] | None = None,
        on_log: Callable[[str, str], None] | None = None,
        **fields: Any,
    ) -> None:
        if isinstance(spec, str | list):
            spec, fields = None, {"urls": [spec] if isinstance(spec, str) else spec, **fields}
        super().__init__(spec_or_fields(RemoteSpec, spec, fields), on_exit=on_exit, on_log=on_log)
        self._answered: dict[str, float] = {}

    def _default_name(self) -> str:
        return "remote"

    def _pause_s(self) -> float:
        return self.spec.check_every_s

    async def _launch(self, name: str) -> Replica:
        taken = {kept.replica.id for kept in self._kept.values()}
        for url in self.spec.urls:
            if url not in taken:
                return Replica(http_address(url), name, url, dict(self.spec.headers))
        raise ProviderError(
            f"all {len(self.spec.urls)} addresses are in use: name more of them in urls, or remove a replica first"
        )

    async def _health(self, replica: Replica, timeout_s: float, ended: Callable[[], bool]) -> str:
        # Where nobody has said how long to wait, an address without a server is told soon: it is mistyped, mostly.
        soon_s = timeout_s if "ready_timeout_s" in self.spec.model_fields_set else min(timeout_s, _NOBODY_S)
        last = await super()._health(replica, soon_s, ended)
        if last and soon_s < timeout_s and not _is_nobody(last):
            soon_s = timeout_s
            last = await super()._health(replica, timeout_s - _NOBODY_S, ended)
        if not last:
            return ""
        late = f"{replica.name} was not ready within {soon_s:g} s"
        if _is_nobody(last):
            raise ServerStartError(
                f"{late}: nothing listens at {replica.base_url} ({last}). Check the address, or start the server "
                "there. Set ready_timeout_s to wait for it longer."
            )
        raise ServerStartError(
            f"{late}: GET {replica.base_url}{self.spec.health_path}: {last}. Raise ready_timeout_s, or look at its log "
            "where it runs."
        )

    async def _remove(self, replica: Replica) -> None:
        self._answered.pop(replica.name, None)

    async def _is_alive(self, replica: Replica) -> bool:
        return not await self._web.ask(f"{replica.base_url}{self.spec.health_path}", replica.headers)

    async def _read_logs(self, replica: Replica, tail: int) -> str:
        return ELSEWHERE

    async def _look(self, replica: Replica) -> Ended | None:
        now = time.monotonic()
        last = await self._web.ask(f"{replica.base_url}{self.spec.health_path}", replica.headers)
        answered = self._answered.setdefault(replica.name, now)
        if not last:
            self._answered[replica.name] = now
            return None
        silent_s = time.monotonic() - answered
        if silent_s < self.spec.dead_after_s:
            return None
        return Ended(None, ELSEWHERE, f"no healthy answer for {silent_s:.0f} s: {last}")
