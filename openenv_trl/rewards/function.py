"""What a reward function is here: a named score of a trajectory, with parts of its own, called as TRL calls it.

Reward functions form a tree: `compose`, `gate` and the others make one of several. Each node is scored once for each
trajectory, and every one of them is kept by its path (``answer/format``) in ``Trajectory.rewards`` and logged, so that
a sum never hides which part moved.
"""

from __future__ import annotations

import inspect
import logging
import math
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import anyio

from openenv_trl.errors import ConfigurationError
from openenv_trl.rollout.first_error import first_error_alone
from openenv_trl.rollout.trajectory import Trajectory

logger = logging.getLogger("openenv_trl.rewards")

Value = float | None
"""A reward; None where there is nothing to learn from."""
Score = Callable[[Trajectory], "Value | Awaitable[Value]"]
"""The reward of one trajectory, at once or awaited."""


@dataclass(frozen=True)
class Scored:
    """What a reward function made of one trajectory.

    Attributes:
        value: The reward; None where there is nothing to learn from.
        parts: The value of each part, by its path below this function.
    """

    value: Value
    parts: Mapping[str, Value] = field(default_factory=dict[str, Value])


class RewardFunction:
    """A reward function that TRL can call, from a function of one trajectory.

    TRL calls it with keywords only, a list each; ``trajectory`` is the one it reads. TRL logs it by its ``__name__``,
    as ``rewards/<name>/mean``; its parts are logged beside it, as ``rewards/<name>/<path of the part>``.

    Args:
        name: What TRL logs it by.
        score: The reward of one trajectory; None where there is nothing to learn from it. It is never asked about a
            failed trajectory, whose reward is always None. It may be a coroutine function: all trajectories of a batch
            are then scored at the same time. NaN and infinity count as None, with a warning: TRL would let one of them
            erase a whole group's advantages.

    Example:
        >>> fewer_words = RewardFunction("fewer_words", lambda trajectory: -0.001 * sum(trajectory.mask))
    """

    def __init__(self, name: str, score: Score) -> None:
        self.__name__ = name
        self.score = score
        self._warned = False

    @property
    def children(self) -> Mapping[str, RewardFunction]:
        """The functions that this one is made of, by name."""
        return {}

    @property
    def is_async(self) -> bool:
        """Whether scoring waits for something, such as a judge's endpoint: its own score, or that of a part."""
        own = inspect.iscoroutinefunction(self.score) or inspect.iscoroutinefunction(
            getattr(self.score, "__call__", None)  # noqa: B004 (an object whose call is a coroutine function)
        )
        return own or any(child.is_async for child in self.children.values())

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[None, None]:
        """Hold open what scoring a batch needs, such as connections, of this function and its parts."""
        async with AsyncExitStack() as stack:
            for child in self.children.values():
                await stack.enter_async_context(child.opened())
            yield

    async def evaluate(self, trajectory: Trajectory) -> Scored:
        """Score one trajectory that did not fail, with all parts.

        Raises:
            ConfigurationError: The function raised, or gave something that is no number.
        """
        return Scored(self._checked(await self._ask(trajectory), trajectory))

    def __call__(self, **columns: Any) -> list[Value]:
        """The reward of each trajectory.

        Raises:
            ConfigurationError: There is no ``trajectory`` column, so the rollouts did not come from this package; or a
                function raised, or gave something that is no number.
        """
        given: Any = columns.get("trajectory")
        if not isinstance(given, (list, tuple)) or not all(isinstance(t, Trajectory) for t in cast("list[Any]", given)):
            raise ConfigurationError(
                f"The reward function '{self.__name__}' reads trajectories, and there are none. Train with "
                "GRPOTrainer(rollout_func=openenv_trl.training.EnvironmentRollout([...]), ...), which brings them."
            )
        trajectories = cast("Sequence[Trajectory]", given)
        scored = self._score_all([t for t in trajectories if not t.end_reason.is_failure])
        remaining = iter(scored)
        results = [None if t.end_reason.is_failure else next(remaining) for t in trajectories]
        for trajectory, result in zip(trajectories, results, strict=True):
            trajectory.rewards[self.__name__] = None if result is None else result.value
            if result is not None:
                trajectory.rewards.update({f"{self.__name__}/{path}": value for path, value in result.parts.items()})
        _log_parts(self.__name__, scored, columns.get("log_metric"))
        return [None if result is None else result.value for result in results]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.__name__!r})"

    def _score_all(self, trajectories: Sequence[Trajectory]) -> list[Scored]:
        """Score them in turn where nothing is awaited, and all at once where something is."""
        if not self.is_async:
            return [self._score_now(trajectory) for trajectory in trajectories]
        from openenv_trl.rollout.play import run_blocking

        return run_blocking(self._gather, trajectories)

    def _score_now(self, trajectory: Trajectory) -> Scored:
        """Run a coroutine that awaits nothing, without an event loop."""
        work = self.evaluate(trajectory)
        try:
            work.send(None)
        except StopIteration as ended:
            return cast("Scored", ended.value)
        finally:
            work.close()
        raise self._waits_unsaid()

    async def _gather(self, trajectories: Sequence[Trajectory]) -> list[Scored]:
        results: dict[int, Scored] = {}

        async def evaluate(index: int) -> None:
            results[index] = await self.evaluate(trajectories[index])

        with first_error_alone():
            async with self.opened(), anyio.create_task_group() as group:
                for index in range(len(trajectories)):
                    group.start_soon(evaluate, index)
        return [results[index] for index in range(len(trajectories))]

    async def _ask(self, trajectory: Trajectory) -> Any:
        return await self._ask_with(self.score, trajectory)

    async def _ask_with(self, score: Score, trajectory: Trajectory) -> Any:
        try:
            value = score(trajectory)
            if not inspect.isawaitable(value):
                return value
            if self.is_async or inspect.iscoroutinefunction(score):
                return await value
            if inspect.iscoroutine(value):
                value.close()
            raise self._waits_unsaid()
        except ConfigurationError:
            raise
        except Exception as error:  # boundary: the function is the user's
            raise ConfigurationError(
                f"The reward function '{self.__name__}' raised {type(error).__name__} ({error}) for {trajectory!r}. "
                "Return None for a trajectory that it cannot score."
            ) from error

    def _waits_unsaid(self) -> ConfigurationError:
        return ConfigurationError(
            f"The reward function '{self.__name__}' waits for something without saying so: make its score, or that of "
            "the part that waits, a coroutine function (async def)."
        )

    def _checked(self, value: Any, trajectory: Trajectory) -> Value:
        if value is None:
            return None
        try:
            number = float(value)  # also numpy's and torch's scalars
        except (TypeError, ValueError, OverflowError) as error:
            raise ConfigurationError(
                f"The reward function '{self.__name__}' must return a number or None, not {value!r:.80} "
                f"({type(value).__name__}), as for {trajectory!r}."
            ) from error
        if math.isfinite(number):
            return number
        if not self._warned:
            self._warned = True
            logger.warning(
                "The reward function '%s' gave %s for %r: such rewards count as None, and the trajectory is left out.",
                self.__name__,
                number,
                trajectory,
            )
        return None


def _log_parts(name: str, scored: Sequence[Scored], log_metric: Any) -> None:
    """Log the mean of each part over the trajectories that it scored; the whole is logged by TRL."""
    if log_metric is None:
        return
    values: dict[str, list[float]] = {}
    for result in scored:
        for path, value in result.parts.items():
            if value is not None:
                values.setdefault(path, []).append(value)
    for path, given in values.items():
        log_metric(f"rewards/{name}/{path}", sum(given) / len(given))
