"""Plays stored episodes again, action by action, and reports the first thing that differs.

An environment whose episodes can be repeated gives the same observations, rewards and ends for the same reset arguments
and actions, always. Where it does not, a group compares episodes that are not alike, and no failure can be looked into.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, cast

import anyio

from openenv_trl.errors import ActionValidationError, ConfigurationError, EnvironmentExecutionError
from openenv_trl.rollout.first_error import first_error_alone
from openenv_trl.rollout.observation import observation_text
from openenv_trl.rollout.plain_text import encodable
from openenv_trl.rollout.session import Session, SessionLease, SessionSource
from openenv_trl.rollout.trajectory import EndReason, Trajectory

_CUT = re.compile(r" ?\[\.\.\. (?:about )?\d+ tokens cut(?: \.\.\.)?\] ?")
"""The note that a shortened observation has in place of what was left out."""


class ReplayOutcome(str, Enum):
    """What came of a replay."""

    EQUAL = "equal"
    """Everything that was recorded happened again."""
    DIFFERENT = "different"
    """Something else happened."""
    FAILED = "failed"
    """It could not be played to the end: no session, or a call that failed. This says nothing of the environment."""
    NOTHING_RECORDED = "nothing_recorded"
    """The episode failed before anything was observed."""


@dataclass(frozen=True)
class Difference:
    """The first thing that differs.

    Attributes:
        turn: The model's message whose action brought it, from 0; None for the reset.
        action: The place of the action in that message, from 0; None for the reset.
        field: "observation", "reward", "done", "truncated", or "error" where the environment refused or raised.
        expected: What was recorded.
        found: What happened now.
    """

    turn: int | None
    action: int | None
    field: str
    expected: Any
    found: Any

    def __str__(self) -> str:
        where = "reset" if self.turn is None else f"turn {self.turn}, action {self.action}"
        return f"{where}: the {self.field} was {self.expected!r:.200} and is now {self.found!r:.200}"


@dataclass(frozen=True)
class Replay:
    """What came of playing a trajectory again.

    Attributes:
        trajectory: What was played.
        outcome: Whether it is the same.
        actions: Actions that were taken again.
        difference: The first difference, where there is one.
        problem: Why it could not be played, where it could not.
    """

    trajectory: Trajectory
    outcome: ReplayOutcome
    actions: int = 0
    difference: Difference | None = None
    problem: str | None = None

    @property
    def is_equal(self) -> bool:
        """Whether everything that was recorded happened again."""
        return self.outcome is ReplayOutcome.EQUAL


Pools = SessionSource | Mapping[str, SessionSource]
"""Where sessions come from: one pool, or one for each ``Trajectory.environment``."""


async def replay(
    trajectory: Trajectory, pool: Pools, *, connect_timeout_s: float = 300.0, call_timeout_s: float = 60.0
) -> Replay:
    """Reset a session with the trajectory's arguments, take its actions, and compare.

    Compared are the text of each observation, the reward, and the end. Of a text that ``max_observation_tokens`` cut,
    what was kept is compared. Actions that were refused are not taken again.

    Args:
        trajectory: What to play.
        pool: Where the session comes from.
        connect_timeout_s: Seconds to wait for a session.
        call_timeout_s: Seconds that the reset and each step may take.

    Raises:
        ConfigurationError: There is no pool for the trajectory's environment.
    """
    source = _pool_for(trajectory, pool)
    if trajectory.end_reason.is_failure and not trajectory.messages:
        return Replay(trajectory, ReplayOutcome.NOTHING_RECORDED)
    run = _Run(trajectory, call_timeout_s)
    healthy = False
    try:
        lease: SessionLease = await source.acquire(connect_timeout_s)
        try:
            await run.play(lease.session)
            healthy = True
        except _Differs:
            healthy = not run.in_call
        finally:
            with anyio.CancelScope(shield=True):
                await source.release(lease, healthy=healthy)
    except ConfigurationError:
        raise
    except Exception as error:  # boundary: sessions may be anyone's code
        problem = f"{run.at}: {str(error) or type(error).__name__}"
        return Replay(trajectory, ReplayOutcome.FAILED, run.actions, problem=problem)
    outcome = ReplayOutcome.EQUAL if run.difference is None else ReplayOutcome.DIFFERENT
    return Replay(trajectory, outcome, run.actions, run.difference)


async def replay_all(
    trajectories: Sequence[Trajectory],
    pool: Pools,
    *,
    concurrency: int = 64,
    connect_timeout_s: float = 300.0,
    call_timeout_s: float = 60.0,
    on_replay: Callable[[Replay], None] | None = None,
) -> list[Replay]:
    """Play many trajectories again, side by side: see `replay`.

    Args:
        trajectories: What to play.
        pool: Where sessions come from.
        concurrency: How many at once.
        connect_timeout_s: Seconds that each may wait for a session.
        call_timeout_s: Seconds that a reset and each step may take.
        on_replay: Called with each as it is done.

    Returns:
        One for each trajectory, in their order.

    Raises:
        ConfigurationError: ``concurrency`` is below 1, or there is no pool for an environment.
    """
    if concurrency < 1:
        raise ConfigurationError(f"concurrency={concurrency} must be at least 1.")
    done: dict[int, Replay] = {}
    turnstile = anyio.Semaphore(concurrency)

    async def play(index: int) -> None:
        async with turnstile:
            done[index] = await replay(
                trajectories[index], pool, connect_timeout_s=connect_timeout_s, call_timeout_s=call_timeout_s
            )
        if on_replay is not None:
            on_replay(done[index])

    with first_error_alone():
        async with anyio.create_task_group() as group:
            for index in range(len(trajectories)):
                group.start_soon(play, index)
    return [done[index] for index in range(len(trajectories))]


class _Differs(Exception):
    """Something was found that was not recorded so."""


class _Run:
    """One replay under way."""

    def __init__(self, trajectory: Trajectory, timeout_s: float) -> None:
        self.difference: Difference | None = None
        self.actions = 0
        self.at = "connect"
        self.in_call = False
        self._trajectory = trajectory
        self._timeout_s = timeout_s
        self._turn: int | None = None
        self._action: int | None = None

    async def play(self, session: Session) -> None:
        trajectory = self._trajectory
        self.at = "reset"
        result = await self._call(session.reset(**trajectory.task.reset))
        self._compare_text(trajectory.first_observation, result.observation)
        self._compare("done", False, bool(result.done))
        for self._turn, turn in enumerate(trajectory.turns):
            steps = zip(turn.actions, turn.action_observations, turn.rewards, strict=False)
            for self._action, (action, text, reward) in enumerate(steps):
                self.at = f"turn {self._turn}, action {self._action}"
                result = await self._call(session.step(action))
                self.actions += 1
                ends = turn.done and self._action == len(turn.actions) - 1
                self._compare_text(text, result.observation)
                self._compare("reward", reward, None if result.reward is None else float(result.reward))
                self._compare("done", ends, bool(result.done))
                if ends:
                    self._compare("truncated", trajectory.end_reason is EndReason.TRUNCATED, _is_truncated(result))

    async def _call(self, call: Any) -> Any:
        self.in_call = True
        try:
            with anyio.fail_after(self._timeout_s):
                result = await call
        except TimeoutError as error:
            text = str(error) or f"the environment did not answer within {self._timeout_s:g} s"
            raise TimeoutError(text) from error
        except (ActionValidationError, ConfigurationError) as error:
            self.in_call = False
            self._compare("error", None, str(error))
        except EnvironmentExecutionError as error:
            self._compare("error", None, str(error))
        else:
            self.in_call = False
            return result

    def _compare_text(self, expected: str, observation: Any) -> None:
        found = encodable(observation_text(observation))
        if not _same_text(expected, found, marks_were_broken=self._trajectory.marks_broken > 0):
            self._differ("observation", expected, found)

    def _compare(self, field: str, expected: Any, found: Any) -> None:
        if expected != found:
            self._differ(field, expected, found)

    def _differ(self, field: str, expected: Any, found: Any) -> None:
        self.difference = Difference(self._turn, self._action, field, expected, found)
        raise _Differs


def _same_text(recorded: str, found: str, *, marks_were_broken: bool) -> bool:
    """Whether a text is the recorded one, which was made fit for the model: marks broken by spaces, a part left out."""
    if recorded == found:
        return True
    if marks_were_broken:
        found = "".join(found.split())
    for cut in (None, *_CUT.finditer(recorded)):
        kept = [recorded]
        if cut is not None:  # it may go through a character
            kept = [recorded[: cut.start()].rstrip("\ufffd"), recorded[cut.end() :].lstrip("\ufffd")]
        if marks_were_broken:
            kept = ["".join(text.split()) for text in kept]
        same = found == kept[0] if cut is None else found.startswith(kept[0]) and found.endswith(kept[1])
        if same:
            return True
    return False


def _is_truncated(result: Any) -> bool:
    metadata: Any = result.metadata or cast("dict[str, Any]", result.observation).get("metadata")
    return isinstance(metadata, dict) and bool(cast("dict[str, Any]", metadata).get("truncated"))


def _pool_for(trajectory: Trajectory, pool: Pools) -> SessionSource:
    if not isinstance(pool, Mapping):
        return pool
    found = pool.get(trajectory.environment)
    if found is None:
        raise ConfigurationError(
            f"A trajectory was played in the environment '{trajectory.environment}', for which there is no pool; there "
            f"are those of {sorted(pool)}."
        )
    return found
