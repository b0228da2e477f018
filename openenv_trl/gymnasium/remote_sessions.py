"""Several sessions on one server or on several, whose calls run at the same time.

Promises: calls of one round go out together, and a round is over when all of its calls are; one that fails cancels no
other, since a session whose call is cancelled is lost; after a failed round no step is taken before a reset of all.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import anyio
from gymnasium.utils import seeding

from openenv_trl.client.background import background_portal
from openenv_trl.client.generic import GenericEnvClient
from openenv_trl.errors import ActionValidationError, ConfigurationError, SessionStateError
from openenv_trl.gymnasium.dialect import Dialect, Outcome, Wishes
from openenv_trl.gymnasium.remote_env import frame_of
from openenv_trl.gymnasium.server_schema import schema_of_server

T = TypeVar("T")
Beginning = tuple[Any, dict[str, Any]]


@dataclass(frozen=True)
class Moved:
    """What one session has brought in a round of steps.

    Attributes:
        outcome: Of the step; None where the session was reset instead.
        beginning: Of the reset, where there was one: in place of a step, or after one that ended the episode.
    """

    outcome: Outcome | None
    beginning: Beginning | None


class RemoteSessions:
    """Sessions for a vector of environments.

    Args:
        number: How many.
        base_url: The server's address, or those of several, over which the sessions are spread. None where the
            provider starts it.
        provider: Starts the server.
        wishes: What the user says of it.
        settings: Further arguments of the clients.

    Raises:
        ConfigurationError: No sessions, spaces that can neither be derived nor were they given, or servers of
            environments that differ in their spaces.
        ConnectionFailedError: No server answered at the address.

    Attributes:
        dialect: What is said to the servers.
    """

    def __init__(
        self,
        number: int,
        base_url: str | Sequence[str] | None,
        provider: Any,
        wishes: Wishes,
        settings: Mapping[str, Any],
    ) -> None:
        addresses = [base_url] if base_url is None or isinstance(base_url, str) else list(base_url)[:number]
        if number < 1 or not addresses:
            raise ConfigurationError(f"num_envs={number} at {addresses}: one session on one server at least.")
        self._number = number
        self._roots = [GenericEnvClient(address, provider=provider, **settings) for address in addresses]
        self._clients: list[GenericEnvClient] = []
        self._failed = False
        self._generators = [seeding.np_random()[0] for _ in range(number)]
        try:
            schema = schema_of_server(self._roots[0].sync(), provider, settings.get("headers"))
            self.dialect = Dialect(schema, wishes)
            for root in self._roots[1:]:
                self._require_alike(root, wishes, settings)
        except BaseException:
            self.close()
            raise

    def reset(
        self, seeds: Sequence[int | None], options: Mapping[str, Any] | None, chosen: Sequence[bool]
    ) -> list[Beginning | None]:
        """Begin episodes in the sessions that are chosen; the first time opens them all."""
        for index, seed in enumerate(seeds):
            if seed is not None and chosen[index]:
                self._generators[index], _ = seeding.np_random(seed)

        async def begin(index: int) -> Beginning | None:
            return await self._begin(index, seeds[index], options) if chosen[index] else None

        beginnings = self._round(begin)
        self._failed = self._failed and not all(chosen)
        return beginnings

    def step(self, actions: Sequence[Any], to_reset: Sequence[bool], *, resets_at_end: bool) -> list[Moved]:
        """Take one step in each session.

        Args:
            actions: One for each.
            to_reset: Which are reset instead.
            resets_at_end: Whether a session whose episode this step ends is reset at once.

        Raises:
            ActionValidationError: Not one action for each, or one that its space does not contain. No session moved.
        """
        if self._failed or not self._clients:
            raise SessionStateError(
                "A call of the last round failed, so the sessions do not stand alike: reset them all first."
                if self._failed
                else "No episode was begun yet. Call reset before the first step.",
                phase="step",
            )

        chosen = self._chosen(actions, to_reset)

        async def move(index: int) -> Moved:
            fields = chosen[index]
            if fields is None:
                return Moved(None, await self._begin(index, None, None))
            outcome = self.dialect.outcome(await self._clients[index].step(fields))
            over = outcome[2] or outcome[3]
            return Moved(outcome, await self._begin(index, None, None) if over and resets_at_end else None)

        return self._round(move)

    def frames(self) -> list[Any]:
        """Return what each environment renders."""

        async def frame(index: int) -> Any:
            return frame_of(await self._clients[index].state())

        return self._round(frame) if self._clients else [None] * self._number

    def close(self) -> None:
        """End the sessions, and the server where a provider has started it."""
        # The others are children of these.
        background_portal().call(_all_of, [root.close for root in self._roots])

    def _require_alike(self, root: GenericEnvClient, wishes: Wishes, settings: Mapping[str, Any]) -> None:
        schema = schema_of_server(root.sync(), None, settings.get("headers"))
        try:
            difference = self.dialect.difference(Dialect(schema, wishes))
        except ConfigurationError as error:
            raise ConfigurationError(f"{root.base_url}: {error}") from error
        if difference is not None:
            raise ConfigurationError(
                f"The environment at {root.base_url} is not like the one at {self._roots[0].base_url}: {difference}. "
                "Sessions of one vector need equal spaces: give addresses of servers of one environment."
            )

    def _chosen(self, actions: Sequence[Any], to_reset: Sequence[bool]) -> list[dict[str, Any] | None]:
        """The fields of each session's action, before any is sent; None for a session that is reset instead."""
        if len(actions) != self._number:
            raise ActionValidationError(
                f"{len(actions)} actions for {self._number} environments: give one for each. No environment moved."
            )
        chosen: list[dict[str, Any] | None] = []
        for index, action in enumerate(actions):
            try:
                chosen.append(None if to_reset[index] else self.dialect.action(action))
            except ActionValidationError as error:
                raise ActionValidationError(f"Environment {index}: {error} No environment moved.") from error
        return chosen

    async def _begin(self, index: int, seed: int | None, options: Mapping[str, Any] | None) -> Beginning:
        arguments = self.dialect.reset_arguments(seed, options, self._generators[index])
        return self.dialect.beginning(await self._clients[index].reset(**arguments))

    def _round(self, call: Callable[[int], Awaitable[T]]) -> list[T]:
        failed, self._failed = self._failed, True
        results = background_portal().call(self._called, call)
        self._failed = failed
        return results

    async def _called(self, call: Callable[[int], Awaitable[T]]) -> list[T]:
        if not self._clients:
            self._clients = await self._opened()
        return await _all_of([functools.partial(call, index) for index in range(self._number)])

    async def _opened(self) -> list[GenericEnvClient]:
        await _all_of([root.connect for root in self._roots])
        others = range(len(self._roots), self._number)
        more = await _all_of([self._roots[index % len(self._roots)].new_session for index in others])
        return [*self._roots, *more]


async def _all_of(calls: Sequence[Callable[[], Awaitable[T]]]) -> list[T]:
    """Make calls at the same time and return their results, or raise the first error when all are over."""
    results: dict[int, T] = {}
    errors: dict[int, BaseException] = {}

    async def make(index: int, call: Callable[[], Awaitable[T]]) -> None:
        try:
            results[index] = await call()
        except Exception as error:  # boundary: it is raised below, when no other call would be cancelled by it
            errors[index] = error

    async with anyio.create_task_group() as group:
        for index, call in enumerate(calls):
            group.start_soon(make, index, call)
    if errors:
        raise errors[min(errors)]
    return [results[index] for index in range(len(calls))]
