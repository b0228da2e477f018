"""What the episodes of a trainer's own loop share: the event loop, the pool of sessions, the tools, the limits.

Everything is open from the first to the last: made by `EnvironmentSessions`, closed by its `close`, and at the
interpreter's exit at the latest.
"""

from __future__ import annotations

import atexit
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar, cast

import anyio

from openenv_trl.client import fetch_schema
from openenv_trl.errors import ConfigurationError
from openenv_trl.providers.base import Provider
from openenv_trl.rollout.dialogue_template import DialogueTemplate
from openenv_trl.rollout.held_open import HeldOpen
from openenv_trl.rollout.limits import RolloutLimits
from openenv_trl.rollout.plain_text import encodable
from openenv_trl.rollout.play import asking, open_pool
from openenv_trl.rollout.refusals import RefusalWatch
from openenv_trl.rollout.servers import ProvidedServers
from openenv_trl.rollout.session import SessionLease, SessionSource
from openenv_trl.training.action_tools import ActionTools
from openenv_trl.training.background import BackgroundLoop
from openenv_trl.training.server_check import check_servers

T = TypeVar("T")

Servers = str | Sequence[str] | ProvidedServers | Provider | SessionSource
"""Addresses of servers of one environment, what starts them, a provider that does, or where sessions come from."""

_STARVED_PATIENCE_S = 1.0
"""Seconds to wait for a session where the last one that waited got none, and none was given back since."""

_NOT_HERE = {
    "max_turns": "GRPOConfig(max_tool_calling_iterations=...)",
    "max_completion_tokens": "GRPOConfig(max_completion_length=...)",
    "max_new_tokens_per_turn": "GRPOConfig(max_completion_length=...)",
    "batch_timeout_s": "the other deadlines",
}


class TextReader(Protocol):
    """Makes an environment's text fit for a tokenizer. `DialogueTemplate` is one."""

    def defuse(self, text: str) -> tuple[str, int]:
        """The text with the marks of control tokens broken, and how many there were."""
        ...

    def shorten(self, text: str, max_tokens: int) -> tuple[str, int]:
        """The text cut to so many tokens, and how many were cut off."""
        ...


class _AnyTokenizer:
    """Where no tokenizer is known: nothing is looked for, nothing is cut."""

    def defuse(self, text: str) -> tuple[str, int]:
        return encodable(text), 0

    def shorten(self, text: str, max_tokens: int) -> tuple[str, int]:
        return text, 0


@dataclass(frozen=True)
class SessionSettings:
    """How sessions are opened and used.

    Attributes:
        sessions_per_server: Sessions to hold open on each server at most.
        limits: Deadlines and tries. What the trainer's own loop decides (turns, tokens) cannot be set here.
        headers: HTTP headers of every connection.
    """

    sessions_per_server: int = 64
    limits: RolloutLimits = field(default_factory=RolloutLimits)
    headers: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        for name in sorted(self.limits.model_fields_set & set(_NOT_HERE)):
            raise ConfigurationError(
                f"RolloutLimits({name}=...) has no effect where the trainer's own loop plays the episodes. Leave it "
                f"out, and set {_NOT_HERE[name]}; or use rollout_func=EnvironmentRollout(...), which keeps it."
            )


class EnvironmentSessions:
    """The shared part of many episodes.

    Args:
        servers: Where the environment runs.
        settings: How sessions are used.
        tokenizer: The model's, if it is known here: the environment's text then never becomes a control token.
        tools: What the model can call; asked of the environment if None.

    Raises:
        ConfigurationError: There is no server, or nothing to call, or the chat template cannot carry tool calls.
        OpenEnvError: No server answers.
    """

    def __init__(
        self,
        servers: Servers,
        settings: SessionSettings,
        *,
        tokenizer: Any = None,
        tools: ActionTools | None = None,
    ) -> None:
        self.settings = settings
        self.limits = settings.limits
        self.refusals = RefusalWatch()
        self.mistake: ConfigurationError | None = None
        """A mistake of the user's that was found where it could not be raised; whoever can raises it."""
        self._starved = False
        self._provider: Provider | None = None
        self.base_urls = self._addresses(servers)
        self.provided = servers if isinstance(servers, ProvidedServers) else None
        self._source = None if self.base_urls or self.provided else cast("SessionSource", servers)
        self._pool: SessionSource | None = self._source
        self._open_pool = contextlib.AsyncExitStack()
        self._lent: dict[int, tuple[SessionLease, SessionSource]] = {}
        self.loop = BackgroundLoop()
        atexit.register(self.close)
        try:
            if self.base_urls:
                self.loop.call(check_servers, self.base_urls, self.settings.headers)
            self.tools = tools or self.loop.call(self._discover)
            self.reader: TextReader = _AnyTokenizer()
            if tokenizer is not None:
                self.read_with(tokenizer)
        except BaseException:
            self.close()
            raise

    def read_with(
        self,
        tokenizer: Any,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        *,
        chat_template: str | None = None,
    ) -> None:
        """Break, in what the environment says from now on, the marks of this tokenizer's control tokens.

        Args:
            tokenizer: The model's.
            chat_template_kwargs: More arguments for the template.
            chat_template: A template to use in place of the tokenizer's own.

        Raises:
            ConfigurationError: Its chat template cannot carry tool calls; the text says what to set.
        """
        self.reader = DialogueTemplate(
            tokenizer, self.tools.tools, chat_template=chat_template, chat_template_kwargs=chat_template_kwargs
        )

    def submit(self, jobs: Sequence[Callable[[], Awaitable[T]]]) -> list[Future[T]]:
        """Start jobs on the loop, side by side."""
        return self.loop.submit(jobs)

    def raise_mistake(self) -> None:
        """Raise a mistake of the user's that was found in the middle of an episode."""
        if self.mistake is not None:
            raise self.mistake

    async def acquire(self) -> SessionLease:
        """Wait for a session: see `SessionPool.acquire`."""
        patience = self.limits.connect_timeout_s
        if self._pool is None:
            opened = open_pool(
                self.provided or self.base_urls,
                sessions_per_server=self.settings.sessions_per_server,
                headers=self.settings.headers,
            )
            self._pool = await self._open_pool.enter_async_context(HeldOpen(opened))
        pool = self._pool
        assert pool is not None
        lease = await pool.acquire(min(patience, _STARVED_PATIENCE_S) if self._starved else patience)
        self._lent[id(lease)] = lease, pool
        return lease

    def none_was_free(self) -> None:
        """A wait for a session was in vain: the next ones need not be as long, until one is given back."""
        self._starved = True

    def release_soon(self, lease: SessionLease, *, healthy: bool) -> None:
        """Give a session back, without waiting for its end."""
        self._starved = False
        self.loop.start_soon(self._release, lease, healthy)

    def rest(self) -> None:
        """Close all sessions. The next episode opens new ones."""
        if not self.loop.is_closed:
            self.loop.call(self._close_sessions)

    def close(self) -> None:
        """Close all sessions, end the loop, stop the servers that were started here. May be called again."""
        atexit.unregister(self.close)
        self.rest()
        self.loop.close()
        provider, self._provider = self._provider, None
        if provider is not None:
            provider.stop_sync()

    async def _close_sessions(self) -> None:
        self._pool = self._source
        for lease, pool in list(self._lent.values()):
            if pool is self._source:  # whose sessions are not ours to close: they are given back
                await self._release(lease, False)
        await self._open_pool.aclose()

    async def _release(self, lease: SessionLease, healthy: bool) -> None:
        _, pool = self._lent.pop(id(lease), (lease, None))
        if pool is None:
            return  # given back when all were closed
        with anyio.CancelScope(shield=True):
            await pool.release(lease, healthy=healthy)

    @property
    def where(self) -> str:
        """The servers, for a message."""
        return str(self.provided) if self.provided else ", ".join(self.base_urls)

    def _addresses(self, servers: Servers) -> list[str]:
        if isinstance(servers, str):
            return [servers]
        if isinstance(servers, Provider):
            if not servers.replicas:
                servers.start_sync()
                self._provider = servers
            return list(servers.base_urls)
        if isinstance(servers, ProvidedServers) or hasattr(servers, "acquire"):
            return []
        urls = [str(url) for url in cast("Sequence[str]", servers or ())]
        if not urls:
            raise ConfigurationError("base_urls is empty: give the address of at least one environment server.")
        return urls

    async def _discover(self) -> ActionTools:
        lease = await self.acquire()
        healthy = False
        try:
            with anyio.fail_after(self.limits.reset_timeout_s):
                tools = await lease.session.list_tools()
            healthy = True
        finally:
            await self._release(lease, healthy)
        if tools:
            return ActionTools(tuple(tools))
        if not self.base_urls and not self.provided:
            raise ConfigurationError(
                "The environment offers no tools. Say what the model can call: tools=ActionTools(...)."
            )
        assert self._pool is not None, "a session was lent"
        schema = await asking(fetch_schema, self._pool, self.settings.headers)(lease.base_url)
        return ActionTools.from_schema(schema["action"])
