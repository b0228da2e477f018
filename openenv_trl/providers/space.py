"""A Hugging Face Space as an environment server: found by its name, woken where it sleeps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

import anyio
from pydantic import AfterValidator, Field, SecretStr, model_validator

from openenv_trl.errors import ConfigurationError, ProviderError, ServerStartError
from openenv_trl.providers.base import Replica, ReplicaExit
from openenv_trl.providers.hub import hub_token, repository_of, space_page, space_url
from openenv_trl.providers.polled import Ended, PolledProvider
from openenv_trl.providers.space_status import SpaceStatus, space_status
from openenv_trl.providers.spec import ServerSpec, Text
from openenv_trl.providers.spec_fields import spec_or_fields

_SERVES = {"RUNNING", "RUNNING_BUILDING", "RUNNING_APP_STARTING"}
_BROKEN = {
    "PAUSED": "it is paused: its owner starts it again in its settings. Or run your own copy of it",
    "STOPPED": "it was stopped: its owner starts it again in its settings. Or run your own copy of it",
    "DELETING": "it is being deleted. Run your own copy of it",
    "NO_APP_FILE": "it has nothing to run: its repository needs a Dockerfile",
    "CONFIG_ERROR": "the settings in its README.md cannot be used: correct them there",
    "BUILD_ERROR": "its image could not be built: its page shows the build's log",
    "RUNTIME_ERROR": "its server ended with an error: its page shows the log, and restarts it",
}


def _repository(name: str) -> str:
    repository = repository_of(name)
    if repository is None:
        raise ValueError(f"'{name}' is no Space: write it as owner/name")
    return repository


class SpaceSpec(ServerSpec, frozen=True):
    """The server of a Hugging Face Space."""

    type: Literal["space"] = "space"
    space: Annotated[str, AfterValidator(_repository)]
    """The Space, as ``owner/name``, or its page's address."""
    token: SecretStr | None = None
    """A token of the Hub, sent to the Hub and to the Space. Without one, HF_TOKEN's or the one logged in with is sent
    to the Hub, and to the Space only where that is private: the code of others does not see it."""
    headers: dict[str, Text] = Field(default_factory=dict[str, Text], repr=False)
    """Further HTTP headers of every request to the Space."""
    ready_timeout_s: float = Field(default=300.0, gt=0)
    """Seconds within which it must answer its health check, its waking or building counted in."""
    check_every_s: float = Field(default=10.0, gt=0)
    """Seconds between two health checks."""
    dead_after_s: float = Field(default=30.0, gt=0)
    """Seconds without a healthy answer after which it counts as dead."""

    @model_validator(mode="after")
    def _check(self) -> SpaceSpec:
        if self.replicas != 1:
            raise ValueError("replicas: a Space is one server. Name several in providers of their own")
        if self.env_vars:
            raise ValueError("env_vars cannot be set on a Space from here: they are among its settings on the Hub")
        return self


class SpaceProvider(PolledProvider[SpaceSpec]):
    """Uses the server of a Hugging Face Space, and wakes it where it sleeps.

    ``start`` asks the Hub for the Space, asks the Space itself for its health, which wakes a sleeping one, and waits
    until it answers; a Space that cannot come up by waiting is told at once. ``stop`` leaves the Space as it is.

    Args:
        spec: A `SpaceSpec`, or the Space's name; None where ``start`` is given a spec.
        on_exit: Called when it no longer answers, from a thread of the provider's own.
        on_log: Never called: the Hub keeps its lines.
        **fields: Fields of a `SpaceSpec`, in place of one.

    Example:
        >>> async with EchoEnv(provider=SpaceProvider("openenv/echo_env")) as env:
        ...     await env.reset()
    """

    SPEC = SpaceSpec

    def __init__(
        self,
        spec: SpaceSpec | str | None = None,
        *,
        on_exit: Callable[[ReplicaExit], None] | None = None,
        on_log: Callable[[str, str], None] | None = None,
        **fields: Any,
    ) -> None:
        if isinstance(spec, str):
            spec, fields = None, {"space": spec, **fields}
        super().__init__(spec_or_fields(SpaceSpec, spec, fields), on_exit=on_exit, on_log=on_log)
        self._answered = 0.0

    def _default_name(self) -> str:
        return self.spec.space.rpartition("/")[2]

    def _pause_s(self) -> float:
        return self.spec.check_every_s

    def _token(self) -> str | None:
        return hub_token() if self.spec.token is None else self.spec.token.get_secret_value()

    async def _status(self) -> SpaceStatus:
        return await space_status(self._web.http, self.spec.space, self._token())

    async def _launch(self, name: str) -> Replica:
        space = self.spec.space
        if any(kept.replica.id == space for kept in self._kept.values()):
            raise ProviderError(f"the Space {space} is one server, and is in use: name another for more")
        status = await self._status()
        self._refuse_broken(status)
        headers = dict(self.spec.headers)
        token = self._token()
        if status.private and token is None:
            raise ConfigurationError(f"The Space {space} is private: set HF_TOKEN, or pass token=.", phase="start")
        if token and (status.private or self.spec.token is not None):
            headers.setdefault("Authorization", f"Bearer {token}")
        return Replica(status.host or space_url(space), name, space, headers)

    def _refuse_broken(self, status: SpaceStatus) -> None:
        if status.stage in _BROKEN:
            page = space_page(self.spec.space)
            raise ServerStartError(
                f"The Space {self.spec.space} cannot be used: {_BROKEN[status.stage]} ({page}).", log_tail=status.error
            )

    async def _health(self, replica: Replica, timeout_s: float, ended: Callable[[], bool]) -> str:
        """Asks the Space for its health, which wakes it, until it runs and answers, or cannot any more."""
        url = f"{replica.base_url}{self.spec.health_path}"
        stage, pause_s = "no answer", 0.1
        with anyio.move_on_after(timeout_s):
            while True:
                # While a Space wakes, a page of the Hub's stands in its place, whatever status that has.
                answer = await self._web.ask(url, replica.headers, page_is_no_answer=True)
                status = await self._status()
                stage = f"{status.stage}, {answer or 'answered'}"
                if not answer and status.stage in _SERVES:
                    return ""
                self._refuse_broken(status)
                await anyio.sleep(pause_s)
                pause_s = min(pause_s * 2, 3.0)
        return f"the Hub calls it {stage}"

    async def _remove(self, replica: Replica) -> None:
        self._answered = 0.0

    async def _is_alive(self, replica: Replica) -> bool:
        return (await self._status()).stage in _SERVES

    async def _read_logs(self, replica: Replica, tail: int) -> str:
        return f"(Its lines are shown at {space_page(self.spec.space)}?logs=container)"

    async def _look(self, replica: Replica) -> Ended | None:
        url = f"{replica.base_url}{self.spec.health_path}"
        last = await self._web.ask(url, replica.headers, page_is_no_answer=True)
        now = anyio.current_time()
        if not last:
            self._answered = now
            return None
        self._answered = self._answered or now
        if now - self._answered < self.spec.dead_after_s:
            return None
        status = await self._status()
        reason = f"no healthy answer for {now - self._answered:.0f} s: {last}; the Hub calls it {status.stage}"
        return Ended(None, status.error or await self._read_logs(replica, 1), reason)
