"""A session whose slow calls are made again in a second one: the first answer wins, the other session is closed.

The second session gets the same ``reset`` and actions first. Where what it answers differs from what the first one
answered, the environment's episodes cannot be repeated after all: the second session is then given up, and counted.
"""

from __future__ import annotations

import copy
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import anyio

from openenv_trl.errors import ActionValidationError
from openenv_trl.rollout.failures import is_of_the_call
from openenv_trl.rollout.session import Session, SessionLease
from openenv_trl.rollout.strategies.hedge import HedgeSlowCalls

logger = logging.getLogger("openenv_trl.rollout")

Call = Callable[[Session], Awaitable[Any]]


@dataclass(frozen=True)
class Outcome:
    """How a call ended: with a result, or an error."""

    result: Any = None
    error: BaseException | None = None

    @property
    def is_answer(self) -> bool:
        """Whether the environment answered, be it that it does not take the action."""
        return self.error is None or isinstance(self.error, ActionValidationError)


@dataclass
class Race:
    """Which of two makes the answer: the first that is one, or the first session's error where there is none."""

    second_runs: bool = False
    first: Outcome | None = None
    decided: anyio.Event = field(default_factory=anyio.Event)
    outcome: Outcome | None = None
    second_won: bool = False

    def first_ended(self, outcome: Outcome) -> None:
        """The call in the first session has ended."""
        self.first = outcome
        if outcome.is_answer or not self.second_runs:
            self._decide(outcome)

    def second_ended(self, outcome: Outcome) -> None:
        """The second session has answered, or did not come to it."""
        self.second_runs = False
        if outcome.is_answer and self.outcome is None:
            self.second_won = True
            self._decide(outcome)
        elif self.first is not None:
            self._decide(self.first)

    def _decide(self, outcome: Outcome) -> None:
        self.outcome = self.outcome or outcome
        self.decided.set()


class HedgedSession:
    """A session for one episode.

    Args:
        lease: The first session.
        acquire: Brings a second one.
        give_back: Takes back one that lost, without waiting: closing a session that hangs takes time.
        strategy: When to hedge.
        counts: "hedges", "hedges_won" and "hedge_mismatches" are counted here.
    """

    def __init__(
        self,
        lease: SessionLease,
        acquire: Callable[[], Awaitable[SessionLease]],
        give_back: Callable[[SessionLease], None],
        strategy: HedgeSlowCalls,
        counts: Counter[str],
    ) -> None:
        self.lease = lease
        """The session that the episode goes on in; its holder gives it back."""
        self._acquire = acquire
        self._give_back = give_back
        self._strategy = strategy
        self._counts = counts
        self._played: list[tuple[Call, Any]] = []
        self._hedges_left = strategy.max_hedges

    async def reset(self, **arguments: Any) -> Any:
        """Begin an episode."""
        self._played = []
        return await self._make(lambda session: session.reset(**copy.deepcopy(arguments)))

    async def step(self, action: Any, timeout_s: float | None = None) -> Any:
        """Take one action."""
        kept = copy.deepcopy(action)
        return await self._make(lambda session: session.step(copy.deepcopy(kept), timeout_s))

    async def _make(self, call: Call) -> Any:
        outcome = await self._first_answer(call)
        if outcome.error is not None:
            raise outcome.error
        self._played.append((call, outcome.result))
        return outcome.result

    async def _first_answer(self, call: Call) -> Outcome:
        race = Race()
        second: list[SessionLease] = []

        async def in_first() -> None:
            race.first_ended(await _outcome(call(self.lease.session)))

        async def in_second() -> None:
            race.second_ended(await _outcome(self._repeat(call, second)))

        try:
            async with anyio.create_task_group() as runners:
                runners.start_soon(in_first)
                with anyio.move_on_after(self._strategy.after_s):
                    await race.decided.wait()
                if not race.decided.is_set() and self._hedges_left:
                    self._hedges_left -= 1
                    self._counts["hedges"] += 1
                    race.second_runs = True
                    runners.start_soon(in_second)
                await race.decided.wait()
                runners.cancel_scope.cancel()
        finally:
            for lease in second:
                if race.second_won:
                    lease, self.lease = self.lease, lease
                    self._counts["hedges_won"] += 1
                self._give_back(lease)
        assert race.outcome is not None
        return race.outcome

    async def _repeat(self, call: Call, second: list[SessionLease]) -> Any:
        second.append(await self._acquire())
        session = second[0].session
        for earlier, result in list(self._played):
            if not _same(await earlier(session), result):
                self._counts["hedge_mismatches"] += 1
                logger.warning(
                    "A second session of %s did not answer as the first one did: its episodes cannot be repeated, and "
                    "hedging is of no use. Do not declare them REPEATABLE, or take another straggler strategy.",
                    second[0].base_url,
                )
                raise ValueError("the second session answered otherwise")
        return await call(session)


async def _outcome(call: Awaitable[Any]) -> Outcome:
    try:
        return Outcome(result=await call)
    except BaseException as error:
        if not await is_of_the_call(error):
            raise
        return Outcome(error=error)


def _same(one: Any, other: Any) -> bool:
    """Whether two results are the same in all that an episode is made of; metadata, such as times, may differ."""
    return (_observed(one), one.reward, one.done) == (_observed(other), other.reward, other.done)


def _observed(result: Any) -> Any:
    observation: Any = result.observation
    if not isinstance(observation, Mapping):
        return observation
    fields = cast("Mapping[str, Any]", observation)
    return {name: value for name, value in fields.items() if name != "metadata"}
