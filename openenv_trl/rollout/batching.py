"""When to ask the policy: in whole batches of whatever sessions are ready, no session waiting for all.

`ReadyBatcher` decides; it has no clock and no task. `BatchedPolicy` is the shell that feeds it and calls the policy.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, cast

import anyio
from pydantic import BaseModel, ConfigDict, Field

from openenv_trl.errors import ConfigurationError, PolicyError
from openenv_trl.rollout.batch_window import BatchWindow
from openenv_trl.rollout.completion_check import checked_completions
from openenv_trl.rollout.failures import is_of_the_call
from openenv_trl.rollout.policy import (
    Completion,
    FailedCompletion,
    MessagePolicy,
    Policy,
    Reply,
    SamplingParameters,
)
from openenv_trl.rollout.task import Message
from openenv_trl.types import Tool

T = TypeVar("T")

_episode: ContextVar[int | None] = ContextVar("openenv_trl episode", default=None)
"""The episode that this task plays, so that its absences are measured."""


class BatchSettings(BaseModel):
    """When a batch is sent to the policy. Policies that are ``concurrent`` (inference servers) are not batched here."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    batch_window_s: float = Field(default=0.02, ge=0)
    """Seconds that the first ready episode waits for others to join its batch, where the window does not adapt or
    nothing has been measured yet. Short beside a generation, long beside a fast step; nobody waits where all episodes
    are ready."""
    adaptive_window: bool = True
    """Whether the window follows what is measured: as long as the next episode is expected so soon that those that
    wait lose less than it gains, else not at all (see `openenv_trl.rollout.batch_window`)."""
    max_window_s: float = Field(default=1.0, ge=0)
    """The longest window that adapts, in seconds, counted from when the first episode was ready and no generation was
    under way. A second bounds the harm of a wrong guess."""
    max_batch_size: int = Field(default=1024, ge=1)
    """Prompts in one call of the policy. Lower it where memory is short."""


@dataclass(frozen=True)
class Fire:
    """Send these requests to the policy now; they are taken out of the batcher."""

    keys: tuple[int, ...]


@dataclass(frozen=True)
class Wait:
    """Do nothing before something happens, or until this time where there is one."""

    until: float | None


class ReadyBatcher:
    """Decides which requests make a batch, and when.

    A batch goes at once where every live episode is ready, or the batch is full; else when its window has passed (see
    `BatchWindow`). While the policy generates nothing goes. Requests go in the order in which they came, so none is
    overtaken.
    """

    def __init__(self, settings: BatchSettings) -> None:
        self._settings = settings
        self._window = BatchWindow(settings)
        self._ready: dict[int, float] = {}
        self._live = 0
        self._episode_of: dict[int, int] = {}
        self._in_batch: tuple[int, ...] = ()
        self._fired_at: float | None = None

    def episode_started(self, episode: int, now: float) -> None:
        """One more episode will ask for completions."""
        self._live += 1
        self._window.left(episode, now)

    def episode_ended(self, episode: int) -> None:
        """One of them will ask no more."""
        self._live -= 1
        self._window.ended(episode)

    def request_added(self, key: int, now: float, episode: int | None = None) -> None:
        """An episode is ready; which, if that is known."""
        self._ready[key] = now
        if episode is not None:
            self._episode_of[key] = episode
            self._window.came(episode, now)

    def request_withdrawn(self, key: int) -> None:
        """An episode no longer waits; unknown keys are ignored."""
        self._ready.pop(key, None)
        self._episode_of.pop(key, None)

    def generation_finished(self, now: float) -> None:
        """The policy has answered the last batch."""
        if self._fired_at is None:
            return
        self._window.generation_ended(now - self._fired_at, now)
        for key in self._in_batch:
            episode = self._episode_of.pop(key, None)
            if episode is not None:
                self._window.left(episode, now)
        self._fired_at, self._in_batch = None, ()

    def decide(self, now: float) -> Fire | Wait:
        """What to do at this time. After `Fire` the policy counts as generating until `generation_finished`."""
        if self._fired_at is not None or not self._ready:
            return Wait(None)
        full = len(self._ready) >= self._settings.max_batch_size
        if not full and len(self._ready) < self._live:
            due = self._window.due(len(self._ready), next(iter(self._ready.values())), now)
            if now < due:
                return Wait(due)
        keys = tuple(self._ready)[: self._settings.max_batch_size]
        for key in keys:
            del self._ready[key]
        self._fired_at, self._in_batch = now, keys
        return Fire(keys)


@dataclass
class _Request:
    prompt: Sequence[int]
    max_new_tokens: int
    answered: anyio.Event = field(default_factory=anyio.Event)
    completion: Completion | FailedCompletion | None = None


class BatchedPolicy:
    """A policy that many episodes ask for one completion each, and that is called with batches.

    Args:
        policy: Who samples.
        sampling: How; its ``max_new_tokens`` is set for each batch to the most that an episode of it asks for.
        settings: When a batch goes.
    """

    def __init__(self, policy: Policy | MessagePolicy, sampling: SamplingParameters, settings: BatchSettings) -> None:
        self.batch_sizes: list[int] = []
        """The size of each batch so far."""
        self._policy = policy
        self._concurrent = bool(getattr(policy, "concurrent", False))
        self._sampling = sampling
        self._batcher = ReadyBatcher(settings)
        self._requests: dict[int, _Request] = {}
        self._next_key = 0
        self._changed = anyio.Event()

    @property
    def speaks_messages(self) -> bool:
        """Whether the policy takes and gives messages (`respond`), not token ids (`complete`)."""
        return hasattr(self._policy, "respond")

    @contextmanager
    def episode(self) -> Generator[None, None, None]:
        """An episode lives, and will ask."""
        episode, self._next_key = self._next_key, self._next_key + 1
        token = _episode.set(episode)
        self._batcher.episode_started(episode, anyio.current_time())
        try:
            yield
        finally:
            _episode.reset(token)
            self._batcher.episode_ended(episode)
            self._changed.set()

    async def complete(self, prompt: Sequence[int], max_new_tokens: int) -> Completion | FailedCompletion:
        """One completion of at most so many tokens."""
        if self._concurrent:
            request = _Request(prompt, max_new_tokens)
            await self._generate([request])
            assert request.completion is not None
            return request.completion
        key, self._next_key = self._next_key, self._next_key + 1
        request = self._requests[key] = _Request(prompt, max_new_tokens)
        self._batcher.request_added(key, anyio.current_time(), _episode.get())
        self._changed.set()
        try:
            await request.answered.wait()
        finally:
            self._batcher.request_withdrawn(key)
            del self._requests[key]
        assert request.completion is not None
        return request.completion

    async def respond(
        self, messages: Sequence[Message], tools: Sequence[Tool], max_new_tokens: int
    ) -> Reply | FailedCompletion:
        """The next message of a policy that speaks in messages.

        Raises:
            PolicyError: The policy raised.
        """
        sampling = replace(self._sampling, max_new_tokens=max_new_tokens)
        self.batch_sizes.append(1)
        return await _ask(lambda: cast("MessagePolicy", self._policy).respond(messages, tools, sampling))

    async def serve(self) -> None:
        """Answer requests until cancelled, with the policy's connections open meanwhile where it has any.

        Raises:
            PolicyError: The policy raised, or its completions do not fit the prompts.
        """
        opened: Any = getattr(self._policy, "opened", nullcontext)
        async with opened():
            await self._serve()

    async def _serve(self) -> None:
        while True:
            decision = self._batcher.decide(anyio.current_time())
            if isinstance(decision, Fire):
                await self._generate([self._requests[key] for key in decision.keys])
                self._batcher.generation_finished(anyio.current_time())
                continue
            self._changed = anyio.Event()
            if decision.until is None:
                await self._changed.wait()
            else:
                with anyio.move_on_after(decision.until - anyio.current_time()):
                    await self._changed.wait()

    async def _generate(self, requests: list[_Request]) -> None:
        self.batch_sizes.append(len(requests))
        limits = tuple(request.max_new_tokens for request in requests)
        sampling = replace(self._sampling, max_new_tokens=max(limits), row_limits=limits)
        prompts = [request.prompt for request in requests]
        given = await _ask(lambda: cast("Policy", self._policy).generate(prompts, sampling))
        completions = checked_completions(given, len(requests))
        for request, completion in zip(requests, completions, strict=True):
            request.completion = _cut(completion, request.max_new_tokens)
            request.answered.set()


async def _ask(call: Callable[[], Awaitable[T]]) -> T:
    """Ask the policy, which is anyone's code: whatever it raises, there is no policy any more.

    Raises:
        PolicyError: It raised.
    """
    try:
        return await call()
    except (PolicyError, ConfigurationError):
        raise
    except Exception as error:
        raise PolicyError(
            f"The policy could not generate: {type(error).__name__}: {error}", phase="generate"
        ) from error
    except BaseException as error:
        if not await is_of_the_call(error):
            raise
        # A task of the policy's own was cancelled, or it raised what ends a program: the episodes would wait for ever.
        raise PolicyError(f"The policy could not generate: {error!r}", phase="generate") from error


def _cut(completion: Completion | FailedCompletion, max_new_tokens: int) -> Completion | FailedCompletion:
    """The completion within its own episode's limit, where its batch allowed more."""
    if isinstance(completion, FailedCompletion) or len(completion.ids) <= max_new_tokens:
        return completion
    logprobs = completion.logprobs
    return replace(
        completion,
        ids=completion.ids[:max_new_tokens],
        logprobs=None if logprobs is None else logprobs[:max_new_tokens],
        finished=False,
    )
